"""Statements on pooled connections, with failures of session and time translated.

For several statements on one connection, or several meanings of a failure, see
:func:`bos_postgres.acquire` and :func:`bos_postgres.statement_errors`.

Raises of all functions here:
    Unavailable: no connection is to be had in time, it was lost, or the server did not answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos_postgres.connections import acquire, statement_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    Pool = asyncpg.Pool[asyncpg.Record]


async def fetch(pool: Pool, sql: str, *arguments: object) -> Sequence[asyncpg.Record]:
    """All rows."""
    async with acquire(pool) as connection:
        with statement_errors(connection):
            return await connection.fetch(sql, *arguments)


async def fetchrow(pool: Pool, sql: str, *arguments: object) -> asyncpg.Record | None:
    """The first row, or None."""
    async with acquire(pool) as connection:
        with statement_errors(connection):
            return await connection.fetchrow(sql, *arguments)


async def fetchval(pool: Pool, sql: str, *arguments: object) -> Any:
    """The first column of the first row, or None."""
    async with acquire(pool) as connection:
        with statement_errors(connection):
            return await connection.fetchval(sql, *arguments)


async def execute(pool: Pool, sql: str, *arguments: object) -> str:
    """Nothing but the server's word on it, such as ``UPDATE 3``."""
    async with acquire(pool) as connection:
        with statement_errors(connection):
            status: str = await connection.execute(sql, *arguments)
            return status
