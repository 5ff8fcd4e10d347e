"""Anonymous clients of REST: slow bodies, garbage, trace ids, and addresses behind proxies."""

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bos_identity.signing.key_ring import new_key_encryption_key
from bos_standalone.rest import find_binary
from bos_testkit.processes import running_process, service_process

from .deployments import Deployment, proxy_key, standalone
from .rest_calls import HERE, OTHER_ADDRESS, TIMEOUT_S, Answer, call_rest

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

_PASSWORD = "a horse that no one rode 7"
_PLACES = 10
_SLOW = 50
_MEMORY_MB = 200.0
# Room for fewer bodies, requests and streams than there are slow senders, who would be cut by no
# clock before the test is over.
_SMALL = {
    "BOS_REST_MAX_REQUESTS": str(_PLACES),
    "BOS_REST_MAX_STREAMS": str(_PLACES),
    "BOS_REST_MAX_BODIES": str(2 * _PLACES),
    "BOS_REST_READ_TIMEOUT_S": "600",
    "BOS_REST_MIN_BODY_RATE": "0.001",
}


@dataclass(frozen=True)
class Endpoint:
    """A REST gateway, by its address and the key of an honest caller."""

    address: str
    key: str = ""

    async def call(
        self, verb: str, path: str, body: Any = None, headers: Sequence[tuple[str, str]] = ()
    ) -> Answer:
        """A request with the key."""
        headers = [("Authorization", f"Bearer {self.key}"), *headers]
        return await call_rest(self.address, verb, path, headers, body)

    async def register(self, name: str) -> None:
        fields = {"username": name, "email": f"{name}@example.com", "password": _PASSWORD}
        registered = await call_rest(self.address, "POST", "/v1/users", body=fields)
        assert registered.status == 200, registered.text

    async def log_in(
        self, name: str, password: str = _PASSWORD, headers: Sequence[tuple[str, str]] = ()
    ) -> Answer:
        fields = {"username": name, "password": password, "client_name": "test"}
        return await call_rest(self.address, "POST", "/v1/sessions:logIn", headers, fields)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployed(
    clean_environment: None,
    tmp_path_factory: pytest.TempPathFactory,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("standalone")
    started_before(folder / ".data")
    async with standalone(folder, **_SMALL) as started:
        yield started


@pytest.fixture
def endpoint(deployed: Deployment) -> Endpoint:
    return Endpoint(deployed.targets["rest"].address, deployed.key)


@asynccontextmanager
async def _slow_bodies(endpoint: Endpoint, count: int, source: str) -> AsyncIterator[None]:
    """So many requests that send one byte of their bodies and no more; all have been let in."""
    writers: list[asyncio.StreamWriter] = []
    host, _, port = endpoint.address.rpartition(":")
    try:
        for number in range(count):
            path = ("/v1/runs:ask", "/v1/runs:askStream", "/v1/sessions:logIn")[number % 3]
            reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
            writers.append(writer)
            head = (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {endpoint.key}\r\n"
                "Content-Type: application/json\r\nContent-Length: 1000\r\n"
                "Expect: 100-continue\r\n\r\n"
            )
            writer.write(head.encode())
            await writer.drain()
            line = await asyncio.wait_for(reader.readline(), TIMEOUT_S)
            assert b"100 Continue" in line, line
            writer.write(b"{")
            await writer.drain()
        yield
    finally:
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("source", [HERE, OTHER_ADDRESS])
async def test_slow_bodies_cause_no_refusals_of_others(
    deployed: Deployment, endpoint: Endpoint, source: str
) -> None:
    name = f"slow{source.rpartition('.')[2]}"
    async with _slow_bodies(endpoint, _SLOW, source):
        await endpoint.register(name)
        for _ in range(5):
            assert (await endpoint.log_in(name)).status == 200
            assert (await endpoint.call("GET", "/v1/runs")).status == 200
            planned = await endpoint.call("POST", "/v1/runs:ask", {"question": "What is 2 + 3?"})
            assert planned.status == 200, planned.text
            assert (await endpoint.call("GET", "/readyz")).status == 200
    assert deployed.targets["rest"].memory_mb() < _MEMORY_MB


async def test_anonymous_call_is_refused_before_its_body(endpoint: Endpoint) -> None:
    def refused() -> bytes:
        host, _, port = endpoint.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as one:
            one.sendall(
                b"POST /v1/runs:ask HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
            received = b""
            while more := one.recv(65536):  # to the end of the connection
                received += more
            return received

    assert b" 401 " in (await asyncio.to_thread(refused)).partition(b"\r\n")[0]


def _nested(levels: int) -> str:
    inner = "[" * levels + "]" * levels
    return f'{{"question": "x", "context": {{"a": {inner}}}}}'


GARBAGE: list[tuple[str, str, str | bytes | None]] = [
    ("GET", "/v1/runs/%ff", None),
    ("GET", "/v1/runs/%00", None),
    ("GET", "/v1/runs/%ed%a0%80/files/" + "0" * 64, None),
    ("GET", "/v1/runs?page_token=%00", None),
    ("GET", "/v1/runs?%ff=1", None),
    ("GET", "/v1/runs?page_token=%", None),
    ("POST", "/v1/approvals/%ff:respond", '{"decision": "APPROVAL_DECISION_DENY"}'),
    ("POST", "/v1/runs:ask", _nested(101)),
    ("POST", "/v1/runs:ask", _nested(200_000)),
    ("POST", "/query/stream", _nested(101)),
    ("POST", "/hitl/respond", _nested(101)),
    ("POST", "/v1/runs:ask", b'{"question": "\xff"}'),
    ("POST", "/v1/runs:ask", '{"question": "\\ud800"}'),
    ("POST", "/hitl/respond", b'{"request_id": "\xff", "decision": "denied"}'),
    ("POST", "/v1/runs:ask", b"\x00\x01\x02"),
    ("POST", "/v1/runs:ask", '{"question": 1e999999}'),
    ("POST", "/v1/runs:ask", '{"max_turns": 99999999999999999999}'),
]


async def test_garbage_is_an_error_of_its_sender(deployed: Deployment, endpoint: Endpoint) -> None:
    wrong = []
    for verb, path, body in GARBAGE:
        answer = await endpoint.call(verb, path, body)
        if answer.status not in (400, 405) or not answer.reason:
            wrong.append((verb, path, (body or "")[:40], answer.status, answer.text))
    assert not wrong
    deep = await endpoint.call("POST", "/v1/runs:ask", _nested(20))
    assert deep.status == 200, deep.text
    # The services at the edge; what the agents of honest runs say is not looked at here.
    edge = [f'"service": "{name}"' for name in ("rest", "gateway", "identity", "memory")]
    lines = [line for line in deployed.logged().splitlines() if any(one in line for one in edge)]
    assert lines
    assert [line for line in lines if "Traceback" in line] == []


async def test_a_caller_does_not_choose_the_id_of_a_trace(
    deployed: Deployment, endpoint: Endpoint
) -> None:
    chosen = secrets.token_hex(16)
    traceparent = f"00-{chosen}-{secrets.token_hex(8)}-01"
    question = {"question": "What is 2 + 4?", "trace": True}
    asked = await endpoint.call("POST", "/v1/runs:ask", question, [("traceparent", traceparent)])
    assert asked.status == 200, asked.text
    said = deployed.logged()
    assert '"trace_id"' in said
    assert chosen not in said + asked.text


async def test_client_address_is_what_a_known_proxy_states(
    clean_environment: None, postgres_dsn: str, tmp_path: Path
) -> None:
    file, public = proxy_key(tmp_path)
    (tmp_path / "other").mkdir()
    unknown, _ = proxy_key(tmp_path / "other")
    settings = {
        "BOS_IDENTITY_STORE_URL": postgres_dsn,
        "BOS_IDENTITY_KEY_ENCRYPTION_KEYS": new_key_encryption_key(),
        "BOS_IDENTITY_REGISTRATION_OPEN": "true",
        # A throttled caller waits longer than a test takes, also on a slow machine.
        "BOS_IDENTITY_THROTTLE_FIRST_S": "100",
        "BOS_AUTH_PROXY_PUBLIC_KEYS": public,
        "BOS_SERVER_GRACE_S": "0.2",
    }
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    async with service_process("bos_identity", settings) as identity:

        def rest(key_file: Path, **more: str) -> Any:
            front = {
                "BOS_REST_PORT": "0",
                "BOS_REST_GATEWAY_TARGET": "127.0.0.1:1",
                "BOS_REST_IDENTITY_TARGET": identity.address,
                "BOS_REST_SIGNING_KEY_FILE": str(key_file),
                **more,
            }
            return running_process(binary, settings=front)

        async with rest(unknown) as started:
            answer = await Endpoint(started.address).log_in("ada")
            assert (answer.status, answer.reason) == (403, "PROXY_UNKNOWN")
        async with rest(file, BOS_REST_TRUSTED_PROXIES=f"{HERE}/32") as started:
            endpoint = Endpoint(started.address)
            await endpoint.register("ada")
            guesser = [("X-Forwarded-For", "192.0.2.1, 203.0.113.7")]
            for number in range(24):
                last = await endpoint.log_in(f"guess{number}", "wrong" * 4, headers=guesser)
            assert last.status == 429
            # No other client is locked out, and its address is the one that is kept.
            honest = await endpoint.log_in("ada", headers=[("X-Forwarded-For", "203.0.113.8")])
            assert honest.status == 200, honest.text
            signed_in = Endpoint(started.address, json.loads(honest.text)["tokens"]["access_token"])
            listed = json.loads((await signed_in.call("GET", "/v1/sessions")).text)["sessions"]
            assert {one["client_address"] for one in listed} == {"203.0.113.8"}
