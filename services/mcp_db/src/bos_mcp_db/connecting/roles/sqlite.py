"""SQLite knows no roles: what is tried is the connection as mcp_db opens it."""

from __future__ import annotations

from typing import Final

from bos_mcp_db.backends.backend import Backend, Limits
from bos_mcp_db.connecting.roles.sessions import Outcome
from bos_mcp_db.connecting.texts import one_line
from bos_mcp_db.failures import QueryFailed

_LIMITS: Final = Limits(max_rows=1, max_columns=500, max_bytes=1_000_000, timeout_s=10)
_REFUSED: Final = frozenset({"SQLITE_AUTH", "SQLITE_READONLY"})


class SqliteSession:
    """See :class:`~bos_mcp_db.connecting.roles.sessions.RoleSession`; no guard is in between."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def attempt(self, sql: str) -> Outcome:
        """Each on a connection of its own."""
        try:
            await self._backend.query(sql, _LIMITS)
        except QueryFailed as failure:
            refused = failure.sqlstate in _REFUSED
            return Outcome("refused" if refused else "failed", one_line(failure.message))
        return Outcome("done")

    async def surplus(self, granted: frozenset[tuple[str, str]]) -> list[str]:
        """Nothing: there is no catalogue of rights."""
        return []
