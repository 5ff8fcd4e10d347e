"""A caller who gives up, wherever a query stands: its session goes back without a transaction."""

import asyncio
from contextlib import nullcontext
from typing import Any

import anyio
import asyncpg
import pytest
from ending_sessions import EndingProxy, HoldingProxy

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.postgres.backend import PostgresBackend
from bos_mcp_db.failures import DatabaseUnavailable

LIMITS = Limits(max_rows=10, max_columns=10, max_bytes=100_000, timeout_s=60)
QUERY = "SELECT mood FROM orders WHERE order_id = 1"


@pytest.fixture
async def reports() -> list[str]:
    """What is reported to the event loop, as asyncpg does of transactions left open."""
    found: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: found.append(context["message"])
    )
    return found


class Caller:
    """Asks once, and may give up: as a task of asyncio, or in a scope as the MCP server has."""

    def __init__(self, backend: PostgresBackend, *, in_scope: bool) -> None:
        self._scope = anyio.CancelScope() if in_scope else None
        self._task = asyncio.create_task(self._ask(backend))

    async def _ask(self, backend: PostgresBackend) -> Any:
        with self._scope or nullcontext():
            return (await backend.query(QUERY, LIMITS)).rows

    def give_up(self) -> None:
        if self._scope is None:
            self._task.cancel()
        else:
            self._scope.cancel()

    async def ended(self) -> Any:
        (outcome,) = await asyncio.gather(self._task, return_exceptions=True)
        return outcome


async def answers_to_one_query(dsn: str) -> int:
    """Answers of the server until the session is given back."""
    proxy = EndingProxy(dsn)
    async with proxy.open() as behind:
        backend = PostgresBackend(behind, default_schema="public", pool_size=1)
        assert (await backend.query(QUERY, LIMITS)).rows == [["glad"]]
        await backend.aclose()
    return proxy.answered


@pytest.mark.parametrize("in_scope", [True, False], ids=["scope", "task"])
async def test_wherever_a_caller_gives_up_no_transaction_is_left_open(
    reader_dsn: str, reports: list[str], in_scope: bool
) -> None:
    answers = await answers_to_one_query(reader_dsn)
    assert answers > 4
    for number in range(answers):
        proxy = HoldingProxy(reader_dsn, answers=number)
        async with proxy.open() as dsn:
            backend = PostgresBackend(dsn, default_schema="public", pool_size=1)
            caller = Caller(backend, in_scope=in_scope)
            await proxy.holds.wait()
            caller.give_up()
            proxy.go_on.set()
            outcome = await caller.ended()
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), number
            # By the one connection that there is.
            assert (await backend.query(QUERY, LIMITS)).rows == [["glad"]]
            await backend.aclose()
    assert reports == []


async def test_driver_reports_an_open_transaction(reader_dsn: str, reports: list[str]) -> None:
    backend = PostgresBackend(reader_dsn, default_schema="public", pool_size=1)
    async with backend._read_only(5) as connection:
        await connection.execute("ROLLBACK; BEGIN")
        await backend._pool.release(connection)
    await backend.aclose()

    (report,) = reports
    assert "active transaction" in report


async def test_session_given_back_keeps_no_lock_and_no_setting(
    reader_dsn: str, postgres_admin: asyncpg.Connection
) -> None:
    backend = PostgresBackend(reader_dsn, default_schema="public", pool_size=1)
    locked = "SELECT pg_advisory_lock(7)::text, set_config('application_name', 'x', false)"
    await backend.query(locked, LIMITS)
    name = await backend.query("SELECT current_setting('application_name') AS name", LIMITS)
    assert name.rows == [["bos-mcp-db"]]
    assert await postgres_admin.fetchval("SELECT pg_try_advisory_lock(7)")
    await backend.aclose()


async def test_closing_waits_for_sessions_that_are_being_reset(reader_dsn: str) -> None:
    answers = await answers_to_one_query(reader_dsn)
    proxy = HoldingProxy(reader_dsn, answers=answers - 1)
    async with proxy.open() as dsn:
        backend = PostgresBackend(dsn, default_schema="public", pool_size=1)
        caller = Caller(backend, in_scope=True)
        await proxy.holds.wait()
        caller.give_up()
        await caller.ended()
        resets = set(backend._resets)
        await backend.aclose()
        proxy.go_on.set()
    assert [each.done() for each in resets] == [True]
    with pytest.raises(DatabaseUnavailable):
        await backend.query(QUERY, LIMITS)
