"""MCP client: run token, deadline, cancellation, failures."""

import asyncio
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bos_chassis.auth.callers import RunTokenSigner, RunTokenVerifier, generate_keypair, run_token
from bos_chassis.telemetry import Telemetry
from bos_errors import (
    BosError,
    ConfigurationError,
    DeadlineExceeded,
    Unauthenticated,
    Unavailable,
)
from bos_mcp_db.service import serve as serve_mcp_db
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_sql.database.mcp import McpClient
from bos_testkit.waiting import eventually

from .conftest import FAILED, TABLES, StartHarness, draft, fixtures

pytestmark = pytest.mark.requirement("R-05", "D-19")

ENDLESS = (
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)"
    " SELECT COUNT(*) AS c FROM n"
)


def client(url: str) -> McpClient:
    return McpClient(url, max_reply_bytes=2**24)


@asynccontextmanager
async def answering(status: int, text: str = "", media: str = "text/plain") -> AsyncIterator[str]:
    """Serve the same response to every request."""

    async def answer(_: Request) -> Response:
        return PlainTextResponse(text, status_code=status, media_type=media)

    app = Starlette(routes=[Route("/mcp", answer, methods=["POST"])])
    config = uvicorn.Config(app, log_config=None, log_level=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        server.should_exit = True
        await serving


@pytest.mark.parametrize(
    ("status", "text", "media", "error"),
    [
        (401, "", "text/plain", Unauthenticated),
        (429, "", "text/plain", Unavailable),
        (503, "<html>", "text/html", Unavailable),
        (404, "", "text/plain", ConfigurationError),
        (200, "<html>no MCP</html>", "text/html", ConfigurationError),
    ],
)
async def test_responses_that_are_no_mcp_become_typed_errors(
    status: int, text: str, media: str, error: type[BosError]
) -> None:
    async with answering(status, text, media) as url, client(url) as mcp:
        with pytest.raises(error):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)


async def test_broken_json_is_an_error_and_not_a_hang() -> None:
    async with answering(200, '{"jsonrpc":', "application/json") as url, client(url) as mcp:
        with pytest.raises(BosError):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)


async def test_a_failed_call_does_not_affect_the_next(start: StartHarness) -> None:
    harness = await start()
    async with client("http://127.0.0.1:1/mcp") as mcp:
        with pytest.raises(Unavailable):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)
        with pytest.raises(Unavailable):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)

    async with client(harness.mcp_db.url) as mcp:
        with pytest.raises(ConfigurationError):
            await mcp.call("no_such_tool", {}, timeout_s=5)
        assert (await mcp.call("mcp_db_schema", {}, timeout_s=5))["success"] is True


@pytest.mark.requirement("C-34")
async def test_calls_run_concurrently(start: StartHarness) -> None:
    harness = await start()
    async with client(harness.mcp_db.url) as mcp:
        replies = await asyncio.gather(
            *(
                mcp.call("mcp_db_query", {"query": f"SELECT {n} AS n"}, timeout_s=10)
                for n in range(20)
            )
        )
    assert [reply["data"] for reply in replies] == [[[n]] for n in range(20)]


async def test_a_large_result_arrives(start: StartHarness) -> None:
    """The SDK's default limit for an event is 1 MiB, less than mcp_db may send."""
    harness = await start(mcp_db={"max_rows": 10_000, "max_bytes": 2_000_000})
    sql = (
        "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 9000)"
        " SELECT i, 'a text that is about a hundred characters long, so that rows add up to what"
        " the limit is meant for' AS t FROM n"
    )
    async with client(harness.mcp_db.url) as mcp:
        reply = await mcp.call("mcp_db_query", {"query": sql}, timeout_s=20)
    assert reply["row_count"] == 9000


async def test_the_deadline_ends_a_call_and_its_query(start: StartHarness) -> None:
    harness = await start()
    async with client(harness.mcp_db.url) as mcp:
        with pytest.raises(DeadlineExceeded):
            await mcp.call("mcp_db_query", {"query": ENDLESS}, timeout_s=0.3)
        await eventually(lambda: harness.queries("cancelled") == 1)


async def test_cancelling_the_step_cancels_the_query(start: StartHarness) -> None:
    """Cancellation propagates to the database."""
    harness = await start(fixtures(drafted=draft(ENDLESS)))
    in_flight = "bos_db_queries_in_flight"
    registry = harness.mcp_telemetry.registry

    asking = asyncio.create_task(harness.ask())
    await eventually(lambda: registry.get_sample_value(in_flight) == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)

    await eventually(lambda: harness.queries("cancelled") == 1)


class BreakingClient(McpClient):
    """Breaks as the SDK's streams do when a reply arrives while its call is being cancelled."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1/mcp", max_reply_bytes=1)
        self.calling = asyncio.Event()

    async def _call(self, tool: str, arguments: dict[str, Any]) -> Any:
        self.calling.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ExceptionGroup("", [ExceptionGroup("", [BrokenPipeError()])])


async def test_a_reply_during_cancellation_leaves_the_call_cancelled() -> None:
    async with BreakingClient() as mcp:
        call = asyncio.create_task(mcp.call("mcp_db_schema", {}, timeout_s=60))
        await mcp.calling.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert call.cancelled()


async def test_a_reply_at_the_deadline_is_a_timeout() -> None:
    async with BreakingClient() as mcp:
        with pytest.raises(DeadlineExceeded):
            await mcp.call("mcp_db_schema", {}, timeout_s=0.01)


async def test_an_unreachable_mcp_db_is_a_retryable_failure(start: StartHarness) -> None:
    harness = await start(mcp_url="http://127.0.0.1:1/mcp")

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "Unavailable"
    assert done.result.error.retryable


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"database": "nothing"}, "'nothing'"), ({"dialect": "postgres"}, "BOS_SQL_DIALECT")],
)
@pytest.mark.requirement("D-26")
async def test_an_invalid_setting_ends_the_step_at_once(
    start: StartHarness, settings: dict[str, str], named: str
) -> None:
    harness = await start(settings=settings)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "ConfigurationError"
    assert named in done.result.error.message
    assert not done.result.error.retryable
    assert harness.prompts("QueryDraft") == []


async def test_the_run_token_is_sent_with_the_call(sqlite_url: str) -> None:
    private, public = generate_keypair()
    signer = RunTokenSigner(private)
    verifier = RunTokenVerifier([public], "mcp_db")
    settings = McpDbSettings.load(
        databases={"main": DatabaseSettings(url=SecretStr(sqlite_url), allowed_tables=TABLES)},
        database_url=None,
    )
    telemetry = Telemetry.for_tests("mcp_db")
    async with (
        serve_mcp_db(settings, telemetry, auth=verifier) as server,
        client(server.url) as mcp,
    ):
        with pytest.raises(Unauthenticated):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)
        with run_token(signer.mint("ann", "run", "run/0/step", ["sql", "mcp_db"], 60)):
            assert (await mcp.call("mcp_db_schema", {}, timeout_s=5))["success"] is True
        with (
            run_token(signer.mint("ann", "run", "run/0/step", ["sql"], 60)),
            pytest.raises(Unauthenticated),
        ):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)


@pytest.mark.requirement("A-24")
async def test_a_request_names_the_database_that_is_asked(
    start: StartHarness, sqlite_url: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.executescript(
            "CREATE TABLE ships (name text); INSERT INTO ships VALUES ('Vega');"
        )
    databases = {
        "main": DatabaseSettings(url=SecretStr(sqlite_url), allowed_tables=TABLES),
        "fleet": DatabaseSettings(url=SecretStr(f"sqlite:///{other}"), allowed_tables=("ships",)),
    }
    harness = await start(
        fixtures(drafted=draft("SELECT name FROM ships")),
        settings={"database": "main"},
        mcp_db={"databases": databases},
    )

    there = await harness.ask("Name all ships", backend="fleet")
    own = await harness.ask("Name all ships")
    unknown = await harness.ask("Name all ships", backend="'; DROP TABLE ships --")

    assert there.data["rows"] == [{"name": "Vega"}]
    assert there.result.sources[0].reference == "fleet.ships"
    assert own.result.status == FAILED, "the settings' own database has no such table"
    error = unknown.result.error
    assert (unknown.result.status, error.type) == (FAILED, "InvalidArgument")
    assert error.message.startswith("request.backend: There is no database ")
    assert error.message.endswith("configured: main, fleet.")
    assert not error.retryable
