"""Deletes runs: those past their retention, and on demand those of a user (``bos runs erase``).

A deleted run leaves nothing behind in the log's database but its tokens in the sums of their days;
backups are the operator's. The sum that a user has of the current day is kept with it: erasing the
user once more on a later day deletes that, too.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from bos.runlog.v1 import CancelRequested, LogEvent
from bos_artefacts import Owner
from bos_errors import FailedPrecondition, NotFound, Unavailable
from bos_gateway.run_log.audit import SERVICE
from bos_gateway.run_log.quota import settle
from bos_postgres.audit import OPERATOR, record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import asyncpg

    from bos_gateway.run_log.run_files import RunFiles
    from bos_postgres.connections import Session

_BATCH = 100
_LOOK_AGAIN_S = 0.2
_SHOWN = 10

# Files are deleted before the rows that name them: what is broken off can then be done again.
_TOO_OLD = """
SELECT run_id, user_id, has_files FROM runs
WHERE finished_at < now() - make_interval(secs => $1) AND ($3 OR NOT has_files)
ORDER BY finished_at LIMIT $2
"""
_STORED = """
SELECT EXISTS (SELECT FROM runs WHERE user_id = $1 OR run_id = $2)
       -- Without a name it would be the sums of everybody.
       OR EXISTS (SELECT FROM token_days WHERE user_id = $1 AND user_id <> '')
       OR EXISTS (SELECT FROM webhooks WHERE user_id = $1)
       OR EXISTS (SELECT FROM verified_queries WHERE user_id = $1 OR run_id = $2)
"""
_HAS_RUNS = "SELECT EXISTS (SELECT FROM runs WHERE user_id = $1)"
_UNFINISHED = """
SELECT run_id FROM runs WHERE (user_id = $1 OR run_id = $2) AND finished_at IS NULL
ORDER BY created_at
"""
_ENDED = """
SELECT run_id, user_id, has_files
FROM runs WHERE (user_id = $1 OR run_id = $2) AND finished_at IS NOT NULL LIMIT $3
"""
_DELETE = """
WITH size AS (
    SELECT count(*) AS events, coalesce(sum(octet_length(payload)), 0)::bigint AS bytes
    FROM run_events WHERE run_id = ANY ($1)
), texts AS (
    DELETE FROM answers WHERE run_id = ANY ($1)
), locked AS (
    -- In the order in which everybody locks runs.
    SELECT run_id FROM runs WHERE run_id = ANY ($1) AND finished_at IS NOT NULL
    ORDER BY run_id
    FOR UPDATE
), gone AS (
    DELETE FROM runs USING locked WHERE runs.run_id = locked.run_id RETURNING runs.run_id
)
SELECT (SELECT count(*)::int FROM gone) AS runs, events, bytes FROM size
"""
# Longer than a run may wait for an approval. Of the current day nothing is given back by erasing.
_FORGET_DAYS = """
DELETE FROM token_days WHERE day < (now() AT TIME ZONE 'UTC')::date - $1::int
       AND ($2::text IS NULL OR user_id = $2)
"""
_DAYS_KEPT = 40
# Before the runs: their ends are not posted any more.
_FORGET_WEBHOOKS = """
WITH gone AS (
    DELETE FROM webhooks WHERE user_id = $1 RETURNING webhook_id
)
DELETE FROM webhook_deliveries AS d USING gone AS g WHERE d.webhook_id = g.webhook_id
"""
# What a user has verified outlives the expiry of its run, and not its deletion on demand.
_FORGET_VERIFIED = "DELETE FROM verified_queries WHERE user_id = $1 OR run_id = $2"
_CANCEL = """
INSERT INTO run_inputs (run_id, kind, payload)
SELECT run_id, 'cancel', $2 FROM runs WHERE run_id = ANY ($1) AND finished_at IS NULL
ON CONFLICT DO NOTHING
"""


class Scope(NamedTuple):
    """Scope of an erasure: all runs of a user, or one."""

    user_id: str | None = None
    run_id: UUID | None = None

    def __str__(self) -> str:
        return f"user {self.user_id}" if self.run_id is None else f"run {self.run_id}"


async def too_old(
    session: Session, *, after_s: float, limit: int, files: RunFiles | None = None
) -> list[asyncpg.Record]:
    """Up to ``limit`` runs that ended over ``after_s`` seconds ago, the oldest first.

    Runs with files in an artefact store that is not known here are not among them.
    """
    with_store = files is not None and files.enabled
    return list(await session.fetch(_TOO_OLD, after_s, limit, with_store))


async def delete(session: Session, runs: Sequence[asyncpg.Record]) -> int:
    """Delete runs that have ended, whose files are gone already; returns how many there were."""
    deleted = (await _deleted(session, runs))["runs"]
    if deleted:  # in the transaction of the caller
        await record(session, [SERVICE.entry("runs.expired", runs=str(deleted))])
    return deleted


async def _deleted(session: Session, runs: Sequence[asyncpg.Record]) -> dict[str, int]:
    run_ids = [run["run_id"] for run in runs]
    await settle(session, run_ids)
    row = await session.fetchrow(_DELETE, run_ids)
    assert row is not None
    return dict(row)


async def _erased(session: Session, runs: Sequence[asyncpg.Record], scope: Scope) -> dict[str, int]:
    """Delete a batch on demand, with its entry."""
    async with session.transaction():
        erased = await _deleted(session, runs)
        target = scope.user_id if scope.run_id is None else str(scope.run_id)
        count = str(erased["runs"])
        await record(session, [OPERATOR.entry("run.erased", target or "", runs=count)])
    return erased


async def forget_files(runs: Sequence[asyncpg.Record], files: RunFiles) -> int:
    """Delete the files of those runs that may have some; returns how many there were.

    Raises:
        Unavailable: the artefact store is away; some may be deleted.
    """
    owners = [Owner(run["user_id"], run["run_id"]) for run in runs if run["has_files"]]
    return sum([await files.forget(owner) for owner in owners])


async def forget_days(session: Session, user_id: str | None = None) -> None:
    """Delete how much was consumed on days long gone, or of one user on all days but this one."""
    await session.execute(_FORGET_DAYS, _DAYS_KEPT if user_id is None else 0, user_id)


async def unfinished(session: Session, scope: Scope) -> list[UUID]:
    """Runs in the scope that have not ended, oldest first."""
    return [row["run_id"] for row in await session.fetch(_UNFINISHED, *scope)]


async def erase(session: Session, scope: Scope, files: RunFiles | None = None) -> Counter[str]:
    """Delete the runs in the scope with everything that is stored about them, in small batches.

    With them go verified queries that were made from them; of a user, all, and the webhooks too.

    Returns:
        How many ``runs``, ``events``, ``bytes`` of payload, and ``files`` in the artefact store.

    Raises:
        NotFound: there is nothing to delete.
        FailedPrecondition: one of them has not ended, and nothing was deleted; or one has files
            in an artefact store that is not known here, and this one was not deleted.
        Unavailable: the artefact store is away; some runs may be deleted.
    """
    if not await session.fetchval(_STORED, *scope):
        raise NotFound(f"Nothing is stored of {scope}.")
    if running := await unfinished(session, scope):
        shown = ", ".join(map(str, running[:_SHOWN]))
        raise FailedPrecondition(
            f"{len(running)} of the runs of {scope} have not ended ({shown}); nothing was erased. "
            "Cancel them (CancelRun of the gateway), or add --cancel.",
            reason="RUN_UNFINISHED",
        )
    if scope.user_id is not None:
        await session.execute(_FORGET_WEBHOOKS, scope.user_id)
    await session.execute(_FORGET_VERIFIED, *scope)
    erased = Counter[str]()
    while ended := await session.fetch(_ENDED, *scope, _BATCH):
        erased["files"] += await _forget_files(ended, files)
        erased.update(await _erased(session, ended, scope))
    if scope.user_id is not None:
        await forget_days(session, scope.user_id)
    return erased


async def _forget_files(ended: Sequence[asyncpg.Record], files: RunFiles | None) -> int:
    if files is not None and files.enabled:
        return await forget_files(ended, files)
    if found := [row for row in ended if row["has_files"]]:
        raise FailedPrecondition(
            f"Run {found[0]['run_id']} has files in an artefact store. "
            "Set BOS_GATEWAY_ARTEFACTS_URL as the gateways have it.",
            reason="ARTEFACTS_NOT_CONFIGURED",
        )
    return 0


async def erase_some(
    session: Session, user_id: str, files: RunFiles
) -> tuple[Counter[str], int, bool]:
    """Delete webhooks and verified queries, ask runs to end, delete a batch of those that have.

    Returns:
        What was deleted, as :func:`erase` counts it; how many runs have yet to end; and whether
        nothing is left.

    Raises:
        FailedPrecondition: a run has files in an artefact store that is not known here.
        Unavailable: the artefact store is away.
    """
    scope = Scope(user_id)
    await session.execute(_FORGET_WEBHOOKS, user_id)
    await session.execute(_FORGET_VERIFIED, *scope)
    if running := await unfinished(session, scope):
        await _ask_to_end(session, running)
    ended = await session.fetch(_ENDED, *scope, _BATCH)
    erased = Counter[str]()
    if ended:
        erased["files"] += await _forget_files(ended, files)
        erased.update(await _deleted(session, ended))  # identity writes the audit entry
    done = not await session.fetchval(_HAS_RUNS, user_id)
    if done:
        await session.execute(_FORGET_DAYS, -1, user_id)  # the present day, too
    return erased, len(running), done


async def cancel(session: Session, scope: Scope, *, timeout_s: float) -> None:
    """Ask for the runs in the scope to end, and wait until they have.

    Raises:
        Unavailable: they have not ended in time, as when no gateway is running.
    """
    deadline = time.monotonic() + timeout_s
    while running := await unfinished(session, scope):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"{len(running)} of the runs of {scope} have not ended within {timeout_s:g} s; "
                "nothing was erased. A gateway must be running to end them."
            )
        await _ask_to_end(session, running)
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _ask_to_end(session: Session, running: Sequence[UUID]) -> None:
    event = LogEvent(cancel_requested=CancelRequested(user_id="operator", reason="erased"))
    event.create_time.FromDatetime(datetime.now(UTC))
    await session.execute(_CANCEL, running, event.SerializeToString())
