"""Check of the audit trails: sealed in time, and intact at their end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import asyncpg

from bos_errors import BosError
from bos_gateway.operator.commands.audit import trails
from bos_gateway.operator.commands.deployment import audit_stores_of
from bos_gateway.operator.commands.findings import Finding, ok, problem, warning
from bos_postgres.audit import Checkpoint, checkpoint, read, verify

if TYPE_CHECKING:
    from bos_gateway.operator.commands.deployment import Deployment

    Session = asyncpg.Connection[asyncpg.Record]

_ALL_S: Final = 8.0
# Services seal every second, or as BOS_AUDIT_SEAL_S says, once a minute at the most.
_LATE_S: Final = 300.0
_SEGMENT: Final = 200
"""Rows at the end of a trail that are looked at; `bos audit verify` looks at all."""

_PENDING: Final = """
SELECT count(*) AS entries,
       coalesce(extract(epoch FROM now() - min(occurred_at)), 0)::float8 AS since_s
FROM audit_pending
"""
_END: Final = "SELECT coalesce(max(position), 0) FROM audit_trail"


async def check_trails(deployment: Deployment) -> list[Finding]:
    """Findings about each trail that can be read, within a bounded time."""
    found: list[Finding] = []
    advice = "Name all databases with trails in BOS_…_STORE_URL, of users that may read them."
    try:
        async with (
            asyncio.timeout(_ALL_S),
            aclosing(trails(tuple(audit_stores_of(deployment)))) as opened,
        ):
            async for service, session in opened:
                found.append(await _trail(service, session))
    except BosError as error:
        found.append(warning("audit", error.message, advice))
    except TimeoutError:
        text = "The database is too slow to show the audit trails."
        found.append(warning("audit", text, "Look at its load and log."))
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        text = f"The database refuses to show an audit trail ({type(error).__name__})."
        found.append(warning("audit", text, advice))
    return found


async def _trail(service: str, session: Session) -> Finding:
    defect = await _defect(session)
    if defect:
        advice = (
            "The trail was changed: keep the database as it is, and compare it with an export "
            "by `bos audit verify --against FILE`."
        )
        return problem("audit", f"{service}: {defect}", advice)
    (pending,) = await session.fetch(_PENDING)
    if pending["since_s"] > _LATE_S:
        text = (
            f"{service}: {pending['entries']} entries are not sealed yet, the oldest for "
            f"{pending['since_s']:.0f} s; until then they can be changed unnoticed"
        )
        return warning(
            "audit", text, "Start the service, or look into its log for the task audit sealing."
        )
    return ok("audit", f"{service}: sealed in time, and whole where it ends")


async def _defect(session: Session) -> str:
    """What is wrong with the last rows of the trail; empty if nothing is."""
    # One view of it: rows are sealed and dropped meanwhile.
    async with session.transaction(isolation="repeatable_read", readonly=True):
        start = await checkpoint(session)
        before = int(await session.fetchval(_END)) - _SEGMENT
        entries = list(await read(session, max(start.position, before - 1), _SEGMENT + 1))
    if before > start.position and entries:
        first = entries.pop(0)
        start = Checkpoint(first.position, first.hash)
    defect = verify(start, entries)
    return "" if defect is None else f"row {defect.position} {defect.problem}"
