"""Anonymous clients of REST: slow bodies, garbage, headers twice, trace ids, guesses."""

import asyncio
import http.client
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bos_identity.signing.key_ring import new_key_encryption_key
from bos_postgres import create_database
from bos_standalone.rest import find_binary
from bos_testkit.postgres import PostgresServer
from bos_testkit.processes import peak_memory_mb, running_process, service_process

from .deployments import proxy_key, standalone

pytestmark = [
    pytest.mark.security,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

_TIMEOUT_S = 60.0
_PASSWORD = "a horse that no one rode 7"
_HERE, _OTHER_ADDRESS = "127.0.0.1", "127.0.0.2"
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
# A throttled caller waits longer than a test takes, also on a slow machine.
_LONG_WAIT = {"BOS_IDENTITY_THROTTLE_FIRST_S": "100"}


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    @property
    def reason(self) -> str:
        """Of an error in the one shape that they all have."""
        error = json.loads(self.text)["error"]
        assert error["code"] == self.status
        assert error["message"]
        return str(error["details"][0]["reason"])


@dataclass(frozen=True)
class Endpoint:
    """A REST gateway, and what is behind it."""

    host: str
    port: int
    key: str = ""
    log: Path | None = None
    pid: int = 0

    def memory_mb(self) -> float:
        """The most memory that REST ever had."""
        return peak_memory_mb(self.pid)

    def logged(self) -> str:
        """What the services said."""
        assert self.log is not None
        files = (self.log, self.log.parent.parent / "all.log")
        return "".join(file.read_text() for file in files if file.exists())

    async def call(
        self,
        verb: str,
        path: str,
        body: Any = None,
        headers: Sequence[tuple[str, str]] = (),
        source: str = _HERE,
    ) -> Answer:
        """One request over a connection of its own; text and bytes are sent as they are."""
        return await asyncio.to_thread(self._call, verb, path, body, headers, source)

    def _call(
        self, verb: str, path: str, body: Any, headers: Sequence[tuple[str, str]], source: str
    ) -> Answer:
        connection = http.client.HTTPConnection(
            self.host, self.port, timeout=_TIMEOUT_S, source_address=(source, 0)
        )
        try:
            connection.putrequest(verb, path)
            for name, value in headers:
                connection.putheader(name, value)
            content = b""
            if body is not None:
                text = body if isinstance(body, str | bytes) else json.dumps(body)
                content = text.encode() if isinstance(text, str) else text
                connection.putheader("Content-Type", "application/json")
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        finally:
            connection.close()

    async def honest(self, verb: str, path: str, body: Any = None, source: str = _HERE) -> Answer:
        """A request with the key."""
        return await self.call(verb, path, body, [("Authorization", f"Bearer {self.key}")], source)

    async def register(self, name: str) -> None:
        fields = {"username": name, "email": f"{name}@example.com", "password": _PASSWORD}
        registered = await self.call("POST", "/v1/users", fields)
        assert registered.status == 200, registered.text

    async def log_in(
        self,
        name: str,
        password: str = _PASSWORD,
        source: str = _HERE,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Answer:
        fields = {"username": name, "password": password, "client_name": "test"}
        return await self.call("POST", "/v1/sessions:logIn", fields, headers, source)


def _endpoint(address: str, **more: Any) -> Endpoint:
    host, _, port = address.rpartition(":")
    return Endpoint(host, int(port), **more)


@asynccontextmanager
async def _standalone(folder: Path) -> AsyncIterator[Endpoint]:
    async with standalone(folder, **_SMALL, **_LONG_WAIT) as made:
        rest = made.targets["rest"]
        yield _endpoint(rest.address, key=rest.key, log=made.logs["services"], pid=rest.pid)


@asynccontextmanager
async def _separate(dsn: str, folder: Path, **rest: str) -> AsyncIterator[Endpoint]:
    """Identity and REST, each a process of its own, which know each other by a key."""
    file, public = proxy_key(folder)
    identity = {
        "BOS_IDENTITY_STORE_URL": dsn,
        "BOS_IDENTITY_KEY_ENCRYPTION_KEYS": new_key_encryption_key(),
        "BOS_IDENTITY_REGISTRATION_OPEN": "true",
        "BOS_AUTH_PROXY_PUBLIC_KEYS": public,
        "BOS_SERVER_GRACE_S": "0.2",
        **_LONG_WAIT,
    }
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(service_process("bos_identity", identity))
        in_front = {
            "BOS_REST_PORT": "0",
            "BOS_REST_GATEWAY_TARGET": "127.0.0.1:1",
            "BOS_REST_IDENTITY_TARGET": behind.address,
            "BOS_REST_SIGNING_KEY_FILE": str(file),
            **rest,
        }
        front = await stack.enter_async_context(running_process(binary, settings=in_front))
        yield _endpoint(front.address, pid=front.pid)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    clean_environment: None,
    tmp_path_factory: pytest.TempPathFactory,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Endpoint]:
    folder = tmp_path_factory.mktemp("standalone")
    started_before(folder / ".data")
    async with _standalone(folder) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["standalone", "separate"])
async def endpoint(
    request: pytest.FixtureRequest,
    clean_environment: None,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Endpoint]:
    """REST before identity, in both forms in which people run them."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "standalone":
        started_before(folder / ".data")
        async with _standalone(folder) as started:
            yield started
        return
    dsn = await create_database(postgres_server.dsn(), f"endpoint_{secrets.token_hex(6)}")
    async with _separate(dsn, folder) as started:
        yield started


@asynccontextmanager
async def _slow_bodies(endpoint: Endpoint, count: int, source: str) -> AsyncIterator[None]:
    """So many requests that send one byte of their bodies and no more; all have been let in."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for number in range(count):
            path = ("/v1/runs:ask", "/v1/runs:askStream", "/v1/sessions:logIn")[number % 3]
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, local_addr=(source, 0)
            )
            writers.append(writer)
            head = (
                f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {endpoint.key}\r\n"
                "Content-Type: application/json\r\nContent-Length: 1000\r\n"
                "Expect: 100-continue\r\n\r\n"
            )
            writer.write(head.encode())
            await writer.drain()
            line = await asyncio.wait_for(reader.readline(), _TIMEOUT_S)
            assert b"100 Continue" in line, line
            writer.write(b"{")
            await writer.drain()
        yield
    finally:
        for writer in writers:
            writer.close()


@pytest.mark.parametrize("source", [_HERE, _OTHER_ADDRESS])
async def test_slow_bodies_cause_no_refusals_of_others(harness: Endpoint, source: str) -> None:
    name = f"slow{source.rpartition('.')[2]}"
    async with _slow_bodies(harness, _SLOW, source):
        await harness.register(name)
        for _ in range(5):
            assert (await harness.log_in(name)).status == 200
            assert (await harness.honest("GET", "/v1/runs")).status == 200
            planned = await harness.honest("POST", "/v1/runs:ask", {"question": "What is 2 + 3?"})
            assert planned.status == 200, planned.text
            assert (await harness.call("GET", "/readyz")).status == 200
    assert harness.memory_mb() < _MEMORY_MB


async def test_anonymous_call_is_refused_before_its_body(harness: Endpoint) -> None:
    def refused() -> bytes:
        with socket.create_connection((harness.host, harness.port), timeout=_TIMEOUT_S) as one:
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
    ("GET", "/v1/runs/%c3%28:watch", None),
    ("GET", "/v1/runs/%ed%a0%80/files/" + "0" * 64, None),
    ("GET", "/v1/runs?page_token=%00", None),
    ("GET", "/v1/runs?%ff=1", None),
    ("GET", "/v1/runs?page_token=%", None),
    ("POST", "/v1/runs/%ff:cancel", "{}"),
    ("POST", "/v1/approvals/%ff:respond", '{"decision": "APPROVAL_DECISION_DENY"}'),
    ("POST", "/v1/runs:ask", _nested(29)),
    ("POST", "/v1/runs:ask", _nested(101)),
    ("POST", "/v1/runs:ask", _nested(200_000)),
    ("POST", "/v1/runs:askStream", _nested(101)),
    ("POST", "/query/stream", _nested(101)),
    ("POST", "/hitl/respond", _nested(101)),
    ("POST", "/v1/runs:ask", b'{"question": "\xff"}'),
    ("POST", "/v1/runs:ask", '{"question": "\\ud800"}'),
    ("POST", "/hitl/respond", b'{"request_id": "\xff", "decision": "denied"}'),
    ("POST", "/v1/runs:ask", "{" * 1000),
    ("POST", "/v1/runs:ask", b"\x00\x01\x02"),
    ("POST", "/v1/runs:ask", '{"question": 1e999999}'),
    ("POST", "/v1/runs:ask", '{"max_turns": 99999999999999999999}'),
]


async def test_garbage_is_an_error_of_its_sender(harness: Endpoint) -> None:
    wrong = []
    for verb, path, body in GARBAGE:
        answer = await harness.honest(verb, path, body)
        if answer.status not in (400, 405) or not answer.reason:
            wrong.append((verb, path, (body or "")[:40], answer.status, answer.text))
    assert not wrong


async def test_garbage_leaves_no_traceback(harness: Endpoint) -> None:
    for path in ("/v1/runs/%ff", "/v1/runs/%00", "/v1/runs?page_token=%ff"):
        assert (await harness.honest("GET", path)).status == 400
    assert (await harness.honest("POST", "/v1/runs:ask", _nested(101))).status == 400
    deep = await harness.honest("POST", "/v1/runs:ask", _nested(20))
    assert deep.status == 200, deep.text
    # The services at the edge; what the agents of honest runs say is not looked at here.
    edge = [f'"service": "{name}"' for name in ("rest", "gateway", "identity", "memory")]
    lines = [line for line in harness.logged().splitlines() if any(one in line for one in edge)]
    assert lines
    assert [line for line in lines if "Traceback" in line] == []


async def test_two_credentials_are_none(harness: Endpoint) -> None:
    good, bad = f"Bearer {harness.key}", "Bearer nonsense"
    for second, *values in (
        ("Authorization", good, bad),
        ("authorization", bad, good),
        ("AUTHORIZATION", good, good),
    ):
        headers = [("Authorization", values[0]), (second, values[1])]
        answer = await harness.call("GET", "/v1/runs", headers=headers)
        assert (answer.status, answer.reason) == (401, "CREDENTIAL_AMBIGUOUS"), second
    assert (await harness.honest("GET", "/v1/runs")).status == 200


async def test_a_caller_does_not_choose_the_id_of_a_trace(harness: Endpoint) -> None:
    chosen = secrets.token_hex(16)
    asked = await harness.call(
        "POST",
        "/v1/runs:ask",
        {"question": "What is 2 + 4?", "trace": True},
        [
            ("Authorization", f"Bearer {harness.key}"),
            ("traceparent", f"00-{chosen}-{secrets.token_hex(8)}-01"),
        ],
    )
    assert asked.status == 200, asked.text
    said = harness.logged()
    assert '"trace_id"' in said
    assert chosen not in said + asked.text


async def test_password_guessing_locks_no_other_user_out(endpoint: Endpoint) -> None:
    await endpoint.register("ada")
    statuses = []
    for number in range(24):
        guessed = await endpoint.log_in(
            f"guess{number}",
            "wrong" * 4,
            source=_OTHER_ADDRESS,
            # REST has no reason to trust this header.
            headers=[("X-Forwarded-For", f"203.0.113.{number}")],
        )
        statuses.append(guessed.status)
    assert statuses[0] == 401
    assert statuses[-1] == 429, "a header hides the address of the client"
    honest = await endpoint.log_in("ada")
    assert honest.status == 200, honest.text
    token = json.loads(honest.text)["tokens"]["access_token"]
    listed = await endpoint.call(
        "GET", "/v1/sessions", headers=[("Authorization", f"Bearer {token}")]
    )
    addresses = {one["client_address"] for one in json.loads(listed.text)["sessions"]}
    assert addresses == {_HERE}


async def test_clients_behind_a_proxy_are_distinguished(
    clean_environment: None, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = await create_database(postgres_server.dsn(), f"endpoint_{secrets.token_hex(6)}")
    async with _separate(dsn, tmp_path, BOS_REST_TRUSTED_PROXIES=f"{_HERE}/32") as endpoint:
        await endpoint.register("ada")
        guesser = [("X-Forwarded-For", "192.0.2.1, 203.0.113.7")]
        for number in range(24):
            last = await endpoint.log_in(f"guess{number}", "wrong" * 4, headers=guesser)
        assert last.status == 429
        honest = await endpoint.log_in("ada", headers=[("X-Forwarded-For", "203.0.113.8")])
        assert honest.status == 200, honest.text


async def test_an_unknown_proxy_does_not_hide_clients(
    clean_environment: None, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    dsn = await create_database(postgres_server.dsn(), f"endpoint_{secrets.token_hex(6)}")
    other = tmp_path / "other"
    other.mkdir()
    file, _ = proxy_key(other)
    async with _separate(dsn, tmp_path, BOS_REST_SIGNING_KEY_FILE=str(file)) as endpoint:
        answer = await endpoint.log_in("ada")
        assert (answer.status, answer.reason) == (403, "PROXY_UNKNOWN")
