"""Driver interface of the SQL Server backend: a session."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from bos_mcp_db.backends.blocking import Clock


class ServerError(Exception):
    """The server's own error: ``number`` and message, which is about the query."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.message = message


class Session(Protocol):
    """One connection, from one thread.

    Every method raises :class:`ServerError`, ``TimeoutError`` when the clock is over,
    ``ConnectionFailed`` or ``TooManyBytes``.
    """

    def execute(self, sql: str) -> None:
        """Send one batch; a batch under way is stopped first."""

    def row(self) -> Sequence[Any] | None:
        """Return the next row of the batch's result, None after the last."""

    def rows(self) -> list[Sequence[Any]]:
        """Return all rows of a small result, and finish the batch."""

    def allow(self, received: int) -> None:
        """Bound the bytes received from now on."""

    def stop(self, clock: Clock) -> None:
        """Stop what is under way; the server confirms it within ``clock``."""


class OpenSession(Protocol):
    """Opens sessions; the real one is :func:`bos_mcp_db.backends.mssql_driver.session_opener`."""

    def __call__(self, clock: Clock) -> AbstractContextManager[Session]:
        """Open a session that goes by ``clock``; leaving the context closes the connection."""
