"""A session of PostgreSQL that ends, wherever a query stands: the database is unavailable."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from ending_sessions import End, EndingProxy, message

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.postgres.backend import PostgresBackend
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed

LIMITS = Limits(
    max_rows=10, max_columns=10, max_bytes=100_000, timeout_s=60, max_estimated_cost=1e9
)
# The driver knows neither the enumeration nor arrays of it, and asks the database what they are.
QUERY = "SELECT mood, ARRAY[mood] AS moods FROM orders WHERE order_id = 1"
ROWS = [["glad", ["glad"]]]


@asynccontextmanager
async def backend_behind(proxy: EndingProxy) -> AsyncIterator[PostgresBackend]:
    """An adapter with one connection: one that were never given back would be missed."""
    async with (
        proxy.open() as dsn,
        aclosing(PostgresBackend(dsn, default_schema="public", pool_size=1)) as backend,
    ):
        yield backend


async def answer_of(backend: PostgresBackend) -> Any:
    """The rows, or the kind of failure."""
    try:
        return (await backend.query(QUERY, LIMITS)).rows
    except (DatabaseUnavailable, QueryFailed) as failure:
        return type(failure)


@pytest.mark.parametrize("end", End)
async def test_after_a_session_ends_it_is_unavailable(reader_dsn: str, end: End) -> None:
    whole = EndingProxy(reader_dsn)
    async with backend_behind(whole) as backend:
        assert await answer_of(backend) == ROWS
        answers_to_first = whole.answered
        assert await answer_of(backend) == ROWS
        assert whole.answered < 2 * answers_to_first - 1, "types are asked for once a session"

    found = []
    first = 1 if end is End.ANNOUNCED else 0
    for answers in range(first, whole.answered):
        proxy = EndingProxy(reader_dsn, end, answers=answers)
        async with backend_behind(proxy) as backend:
            found.append([await answer_of(backend) for _ in range(3)])
        assert proxy.has_ended

    # The last step of a query makes the session ready for the next one: its own rows are there.
    assert found == [
        *[[DatabaseUnavailable, ROWS, ROWS]] * (answers_to_first - 1 - first),
        [ROWS, ROWS, ROWS],
        *[[ROWS, DatabaseUnavailable, ROWS]] * (whole.answered - answers_to_first - 1),
        [ROWS, ROWS, ROWS],
    ]


@pytest.mark.parametrize(
    "query",
    ["SELECT ROW(s) FROM pg_stats AS s LIMIT 1"],
    ids=["unknown type"],
)
async def test_unreadable_values_are_the_querys_fault(reader_dsn: str, query: str) -> None:
    proxy = EndingProxy(reader_dsn)
    async with backend_behind(proxy) as backend:
        with pytest.raises(QueryFailed, match="type that cannot be read"):
            await backend.query(query, LIMITS)
        assert await answer_of(backend) == ROWS


async def test_a_server_that_cannot_be_understood_is_unavailable() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!i", await reader.readexactly(4))
        await reader.readexactly(length - 4)
        writer.write(message(b"R", struct.pack("!i", 10) + b"SCRAM-SHA-256\0\0"))
        await reader.read(1)
        writer.write(message(b"R", struct.pack("!i", 11) + b"nonsense"))
        await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    dsn = f"postgresql://ada:word@127.0.0.1:{port}/shop?sslmode=disable"
    backend = PostgresBackend(dsn, default_schema="public", pool_size=1)
    try:
        assert await answer_of(backend) is DatabaseUnavailable
        await asyncio.wait_for(gone.wait(), 60)
    finally:
        await backend.aclose()
        server.close()
