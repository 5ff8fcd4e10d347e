"""MCP client: run token, deadline, cancellation, failures."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bos_errors import (
    BosError,
    ConfigurationError,
    DeadlineExceeded,
    Unauthenticated,
    Unavailable,
)
from bos_mcp_db.settings import DatabaseSettings
from bos_sql.database.mcp import McpClient
from bos_testkit.asgi_server import asgi_server
from bos_testkit.waiting import eventually

from .conftest import FAILED, TABLES, StartHarness, draft, fixtures, sqlite_database

pytestmark = pytest.mark.requirement("R-05", "D-19")

ENDLESS = (
    "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)"
    " SELECT COUNT(*) AS c FROM n"
)


def client(url: str) -> McpClient:
    return McpClient(url, max_reply_bytes=2**24)


@pytest.mark.parametrize(
    ("status", "text", "media", "error"),
    [
        (401, "", "text/plain", Unauthenticated),
        (429, "", "text/plain", Unavailable),
        (503, "<html>", "text/html", Unavailable),
        (404, "", "text/plain", ConfigurationError),
        (200, "<html>no MCP</html>", "text/html", ConfigurationError),
        (200, '{"jsonrpc":', "application/json", BosError),
    ],
)
async def test_responses_that_are_no_mcp_become_typed_errors(
    status: int, text: str, media: str, error: type[BosError]
) -> None:
    async def answer(_: Request) -> Response:
        return PlainTextResponse(text, status_code=status, media_type=media)

    app = Starlette(routes=[Route("/mcp", answer, methods=["POST"])])
    async with asgi_server(app) as url, client(f"{url}/mcp") as mcp:
        with pytest.raises(error):
            await mcp.call("mcp_db_schema", {}, timeout_s=5)


@pytest.mark.requirement("C-34")
async def test_calls_run_concurrently(start: StartHarness) -> None:
    harness = await start()
    async with client(harness.mcp_db.url) as mcp:
        # A failed call does not affect the next.
        with pytest.raises(ConfigurationError):
            await mcp.call("no_such_tool", {}, timeout_s=5)
        queries = [{"query": f"SELECT {n} AS n"} for n in range(20)]
        calls = (mcp.call("mcp_db_query", query, timeout_s=10) for query in queries)
        replies = await asyncio.gather(*calls)
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


@pytest.mark.requirement("A-24")
async def test_a_request_names_the_database(
    start: StartHarness, sqlite_url: str, tmp_path: Path
) -> None:
    other = sqlite_database(
        tmp_path, "CREATE TABLE ships (name text); INSERT INTO ships VALUES ('Vega');"
    )
    databases = {
        "main": DatabaseSettings(url=SecretStr(sqlite_url), allowed_tables=TABLES),
        "fleet": DatabaseSettings(url=SecretStr(other), allowed_tables=("ships",)),
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
