"""Writing audit entries, in the transaction of what they record."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from bos_postgres.connections import acquire, statement_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from bos_postgres.connections import Session

ActorKind = Literal["user", "api_key", "operator", "service", "anonymous"]
Outcome = Literal["succeeded", "refused", "failed"]

_ACTION = re.compile(r"[a-z_]{1,40}\.[a-z_]{1,40}")
_MAX_CHARS = 256
_MAX_DETAILS = 16
_INSERT = """
INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address, details)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
                     $7::jsonb[])
"""


def _short(text: str) -> str:
    # What PostgreSQL and UTF-8 cannot hold comes from callers too, and must not undo what was done.
    sound = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
    return (
        sound if len(sound) <= _MAX_CHARS else sound[: _MAX_CHARS - 1] + "\N{HORIZONTAL ELLIPSIS}"
    )


def _details(given: Mapping[str, str]) -> dict[str, str]:
    return {_short(key): _short(given[key]) for key in sorted(given)[:_MAX_DETAILS]}


@frozen
class AuditEntry:
    """One audited action, done or refused. Texts are cut at 256 characters.

    Raises:
        ValueError: The action is not written as ``thing.done``.
    """

    action: str = field()
    """What was done, as ``thing.done``: ``session.opened``, ``approval.answered``."""
    actor: str = field(converter=_short)
    """Id of the user, of the key or of the service; empty where it is unknown."""
    actor_kind: ActorKind = "user"
    target: str = field(default="", converter=_short)
    """Id of what it was done to."""
    outcome: Outcome = "succeeded"
    address: str = field(default="", converter=_short)
    """Network address of the client, where it is known."""
    details: Mapping[str, str] = field(factory=dict, converter=_details)
    """Ids, digests and names of settings; never content. At most 16."""

    @action.validator
    def _is_an_action(self, _: Any, value: str) -> None:
        if not _ACTION.fullmatch(value):
            raise ValueError(f"{value!r} is no action; write it as thing.done")


async def record(session: Session, entries: Sequence[AuditEntry]) -> None:
    """Write ``entries`` on ``session``; they stand when its transaction does.

    Raises:
        asyncpg.PostgresError: As every statement.
    """
    await session.execute(_INSERT, *columns_of(entries))


def columns_of(entries: Sequence[AuditEntry]) -> list[Sequence[str]]:
    """The entries as seven arrays for ``unnest``, for a statement that writes them itself."""
    rows = [
        (e.actor, e.actor_kind, e.action, e.target, e.outcome, e.address, json.dumps(e.details))
        for e in entries
    ]
    return [list(column) for column in zip(*rows, strict=True)] if rows else [()] * 7


@asynccontextmanager
async def deed(
    pool: asyncpg.Pool[asyncpg.Record],
) -> AsyncIterator[PoolConnectionProxy[asyncpg.Record]]:
    """A transaction for something that is done and for its entry: both stand, or neither.

    Raises:
        Unavailable: No connection is free, or the server went away.
        DeadlineExceeded: A statement ran into the statement time-out.
    """
    async with acquire(pool) as connection:
        with statement_errors(connection):
            async with connection.transaction():
                yield connection


async def record_alone(pool: asyncpg.Pool[asyncpg.Record], *entries: AuditEntry) -> None:
    """Write entries about what has no transaction of its own, such as something that was read.

    Raises:
        Unavailable, DeadlineExceeded: As :func:`deed`.
    """
    async with acquire(pool) as connection:
        with statement_errors(connection):
            await record(connection, entries)
