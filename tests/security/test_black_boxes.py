"""Attacks on a running Bos over gRPC and REST: on one program, and on processes that speak TLS.

What is attacked knows nothing of the tests; they know what an anonymous client, or a user, knows.
At the end anonymous clients flood services: honest callers and probes are answered, memory is
bounded. `make trial NAME=floods` does that over a thousand connections
(``BOS_TEST_FLOOD_CONNECTIONS``).
"""

import asyncio
import json
import os
import resource
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from bos.gateway.v1 import AgentRequest, AskRequest, ListRunsRequest, OrchestratorServiceStub
from bos_testkit.raw_http2 import grpc_frame, raw_connection

from .deployments import Deployment
from .flood_targets import TIMEOUT_S, Target
from .flooder import Flooder, flooder
from .floods import FLOODS, GZIP_BOMB, named
from .rest_calls import OTHER_ADDRESS, Answer, call_rest

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

CONNECTIONS = int(os.environ.get("BOS_TEST_FLOOD_CONNECTIONS", "50"))
SERVERS = ("identity", "mcp_db", "rest")
"""One of each kind: gRPC, where the chassis serves all services alike, HTTP of Python and of Go."""
# Each connection is a file, here and in the services, which inherit the limit.
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(4096, 4 * CONNECTIONS)), most))
PEOPLES = ("gateway", "identity", "memory")
_ASK = "/bos.gateway.v1.OrchestratorService/Ask"
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAUTHENTICATED = 3, 8, 16


async def rest(deployment: Deployment, *request: Any, **more: Any) -> Answer:
    return await call_rest(deployment.targets["rest"].address, *request, **more)


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


async def status(target: Target, metadata: Any) -> int:
    """What comes of a call with these credentials, of a method that wants one."""
    async with raw_connection(target.address, target.tls()) as connection:
        stream = connection.call(target.method, b"", metadata)
        await connection.until(1)
        return connection.statuses[stream]


async def honest(deployment: Deployment) -> None:
    """Everybody else gets what they ask for."""
    for target in deployment.targets.values():
        async with target.connected() as caller:
            await caller.ask()
            assert await caller.check()


async def test_a_second_credential_is_smuggled_nowhere(deployment: Deployment) -> None:
    good, bad = bearer(deployment.key), bearer("nonsense")
    for name in PEOPLES:
        for both in ((*good, *bad), (*bad, *good), (*good, *good)):
            assert await status(deployment.targets[name], both) == _UNAUTHENTICATED, name
    values = f"Bearer {deployment.key}", "Bearer nonsense"
    for first, second in (values, values[::-1]):
        headers = [("Authorization", first), ("authorization", second)]
        refused = await rest(deployment, "GET", "/v1/runs", headers)
        assert (refused.status, refused.reason) == (401, "CREDENTIAL_AMBIGUOUS")
    for name in (
        "Bos-Run-Token",
        "Grpc-Metadata-Authorization",
        "Grpc-Metadata-Bos-Run-Token",
        "Bos-Proxy-Token",
        "X-Forwarded-Authorization",
        "Cookie",
    ):
        refused = await rest(deployment, "GET", "/v1/runs", [(name, values[0])])
        assert refused.status == 401, name
    await honest(deployment)


async def test_forged_headers_do_not_hide_clients_or_break_calls(deployment: Deployment) -> None:
    guess = json.dumps({"username": "unknown", "password": "wrong" * 4}).encode()
    answers = []
    # Each wait doubles: guesses that are slower than all of the first ones still meet one of them.
    while not answers or (answers[-1].status == 401 and len(answers) < 30):
        forwarded = [("X-Forwarded-For", f"203.0.113.{len(answers)}")]
        answers.append(
            await rest(
                deployment, "POST", "/v1/sessions:logIn", forwarded, guess, source=OTHER_ADDRESS
            )
        )
    assert answers[0].status == 401
    assert answers[-1].status == 429, "a header hides the address of the client"
    assert answers[-1].reason == "LOGIN_THROTTLED"
    key = ("Authorization", f"Bearer {deployment.key}")
    odd = await rest(deployment, "GET", "/v1/runs", [key, ("X-Forwarded-For", "\x80\xff")])
    assert odd.status == 400
    page = await rest(deployment, "GET", "/v1/runs", [key, ("Origin", "http://evil.example")])
    assert (page.status, page.reason) == (403, "ORIGIN_NOT_ALLOWED")
    both = [key, ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "identity")]
    smuggled = await rest(deployment, "POST", "/v1/runs:ask", both, b"{}")
    assert smuggled.status in (400, 501)
    large = await rest(deployment, "GET", "/v1/runs", [key, ("X-Large", "x" * 60_000)])
    assert large.status == 431
    await honest(deployment)


async def test_garbage_over_grpc_is_refused_as_such(deployment: Deployment) -> None:
    gateway = deployment.targets["gateway"]
    async with raw_connection(gateway.address, gateway.tls()) as connection:
        streams = [
            connection.call(_ASK, message, bearer(deployment.key))
            for message in (b"\xff" * 64, b"\x0b", b"\x0a\x7f", b"\x0a\xff\xff\xff\xff\x0f")
        ]
        await connection.until(len(streams))
        assert connection.statuses == dict.fromkeys(streams, _INVALID_ARGUMENT)
    await honest(deployment)


async def test_what_is_too_large_is_refused_unseen(deployment: Deployment) -> None:
    gateway = deployment.targets["gateway"]
    question = AskRequest(request=AgentRequest(question="x" * 3_000_000))
    async with gateway.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await OrchestratorServiceStub(channel).Ask(
                question, timeout=TIMEOUT_S, metadata=bearer(deployment.key)
            )
    code = refused.value.code()
    assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
    key = [("Authorization", f"Bearer {deployment.key}")]
    large = await rest(deployment, "POST", "/v1/runs:ask", key, b'"' + b"x" * 1_500_000 + b'"')
    assert large.status == 413
    await honest(deployment)


async def test_bombs_of_users_are_refused_too(deployment: Deployment) -> None:
    gateway = deployment.targets["gateway"]
    empties = grpc_frame(b"\x0a\x00" * 3_000_000)
    async with raw_connection(gateway.address, gateway.tls()) as connection:
        packed = connection.begin(_ASK, (*bearer(deployment.key), ("grpc-encoding", "gzip")))
        await connection.send(packed, GZIP_BOMB, end=True)
        plain = connection.begin(_ASK, bearer(deployment.key))
        await connection.send(plain, empties, end=True)
        await connection.until(2)
        ended = {stream: connection.statuses.get(stream) for stream in (packed, plain)}
    assert set(ended.values()) <= {_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, None}, ended
    assert gateway.memory_mb() < gateway.memory_bound_mb
    await honest(deployment)


async def test_clients_of_other_protocols_are_refused(deployment: Deployment) -> None:
    hello = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"
    for target in deployment.targets.values():
        host, _, port = target.address.rpartition(":")
        for said in (hello, b"GET / HTTP/0.9\r\n\r\n", b"SSH-2.0-x\r\n", bytes(64)):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            writer.write_eof()
            try:
                await asyncio.wait_for(reader.read(), TIMEOUT_S)  # to the end of the connection
            except ConnectionError:
                pass
            finally:
                writer.transport.abort()
    await honest(deployment)


async def test_plain_text_is_refused_over_tls(deployment: Deployment) -> None:
    for name in PEOPLES:
        target = deployment.targets[name]
        async with grpc.aio.insecure_channel(target.address) as channel:
            listed = OrchestratorServiceStub(channel).ListRuns(
                ListRunsRequest(), timeout=TIMEOUT_S, metadata=bearer("nonsense")
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await listed
        away = grpc.StatusCode.UNAVAILABLE
        assert (refused.value.code() == away) == bool(target.ca_file), name


async def test_attacks_leave_no_traceback(deployment: Deployment) -> None:
    edge = [f'"service": "{name}"' for name in (*PEOPLES, "rest", "mcp_db")]
    lines = [line for line in deployment.logged().splitlines() if any(one in line for one in edge)]
    assert lines
    assert [line for line in lines if "Traceback" in line] == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacker(clean_environment: None) -> AsyncIterator[Flooder]:
    """A process that floods."""
    async with flooder() as process:
        yield process


separate = pytest.mark.parametrize("deployment", ["separate"], indirect=True)
standalone = pytest.mark.parametrize("deployment", ["standalone"], indirect=True)


async def assert_withstood(
    name: str, deployment: Deployment, attacker: Flooder, connections: int
) -> None:
    flood = named(name)
    targets = [each for key, each in deployment.targets.items() if key in SERVERS]
    flooded = [target for target in targets if flood.is_for(target)]
    assert flooded
    for target in flooded:
        async with (
            attacker.flooding(name, target, connections),
            target.connected() as caller,
        ):
            await caller.ask()
            assert await caller.check()
        assert target.memory_mb() < target.memory_bound_mb, (target.name, name)


def assert_few_lines(logged: str) -> None:
    assert "Traceback" not in logged, logged[logged.index("Traceback") - 4000 :][:8000]
    assert len(logged) < 2_000_000, "floods fill the disk"


@separate
@pytest.mark.parametrize("name", [flood.name for flood in FLOODS])
async def test_flood_does_not_affect_honest_callers(
    deployment: Deployment, attacker: Flooder, name: str
) -> None:
    await assert_withstood(name, deployment, attacker, CONNECTIONS)


@separate
async def test_floods_are_a_few_lines_in_the_log(deployment: Deployment) -> None:
    assert_few_lines(deployment.logged())


@standalone
async def test_standalone_withstands_floods_over_one_connection(
    deployment: Deployment, attacker: Flooder
) -> None:
    # What calls hold, and what each call costs.
    for name in ("silent-calls", "wrong-tokens"):
        await assert_withstood(name, deployment, attacker, 1)
    assert_few_lines(deployment.logged())
