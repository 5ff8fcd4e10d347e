"""Detecting poolers that give each transaction another session."""

from __future__ import annotations

from typing import Final

import asyncpg
from asyncpg import Connection, Record

from bos_errors import ConfigurationError
from bos_postgres.connections import connect, statement_errors
from bos_postgres.dsn import describe

_ROUNDS: Final = 3
_PROBE_TIMEOUT_S: Final = 17.0  # a value that no operator configures, to be recognised
_PID: Final = "SELECT pg_backend_pid()"


async def require_session_features(dsn: str) -> None:
    """Check that a connection is a session: LISTEN, advisory locks and settings need one.

    Raises:
        ConfigurationError: A pooler between us and the server ends or mixes sessions.
        Unavailable: The server cannot be reached.
    """
    async with (
        connect(dsn, statement_timeout_s=_PROBE_TIMEOUT_S) as first,
        connect(dsn, statement_timeout_s=_PROBE_TIMEOUT_S) as second,
    ):
        try:
            with statement_errors():
                whole = await keeps_settings(first) and await are_separate_sessions(first, second)
        except asyncpg.InvalidSQLStatementNameError:
            whole = False  # prepared in one session, executed in another
    if not whole:
        raise ConfigurationError(
            f"A connection pooler in front of {describe(dsn)} does not keep sessions. Connect to "
            "PostgreSQL directly: LISTEN, advisory locks and per-connection settings need it.",
            reason="DATABASE_POOLER",
        )


async def keeps_settings(connection: Connection[Record]) -> bool:
    """Whether the settings asked for at connecting are in force."""
    query = "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'"
    found = await connection.fetchval(query)
    return bool(found == str(round(_PROBE_TIMEOUT_S * 1000)))


async def are_separate_sessions(first: Connection[Record], second: Connection[Record]) -> bool:
    """Whether two open connections have one server process each, and keep it."""
    home = await first.fetchval(_PID)
    for _ in range(_ROUNDS):
        async with second.transaction():
            if await second.fetchval(_PID) == home:
                return False
            if await first.fetchval(_PID) != home:
                return False
    return True
