"""What the log writer says to PostgreSQL: one statement each, over one session."""

from __future__ import annotations

from collections import Counter as Tally
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from bos_gateway.day_budget import DayBound, held, settled
from bos_gateway.log_statements import (
    ACCEPT,
    ACCEPT_BY_DAY,
    APPEND,
    APPEND_ANY,
    APPEND_SETTLING,
    STORED_IDS,
)
from bos_gateway.state import waits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from bos.runlog.v1 import LogEvent
    from bos_gateway.run_log import NewRun
    from bos_gateway.tail import Row, RunTail

    Session = asyncpg.Connection[asyncpg.Record]

SCHEMA_VERSION = 1
"""Schema of the events that this version writes; it reads none newer."""


class Target(NamedTuple):
    """A run that a statement appends to."""

    run_id: UUID
    epoch: int
    status: int
    finished: bool
    first_sequence: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one statement."""

    lost: set[UUID]
    """Runs that are no longer ours; nothing was written to them."""
    written: int
    """Events that were not there before."""
    inserted: int | None
    """End of the write-ahead log, seen by the statement; None if it found no run of ours."""
    flushed: int | None
    """Its end on disk."""


def target_of(tail: RunTail) -> Target:
    """Where a tail is written again."""
    return Target(tail.run_id, tail.epoch, tail.status or 0, False, tail.rows[0].sequence)


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of new runs; those in none of these have a request id that is known already."""

    created: set[UUID]
    refused: set[UUID]
    """Their users have as many unfinished runs as they may have."""
    unaffordable: dict[UUID, tuple[DayBound | None, DayBound | None, float]]
    """The day's tokens do not suffice: the bounds of user and everybody, seconds to their reset."""


async def insert_runs(session: Session, replica_id: UUID, runs: Sequence[NewRun]) -> Inserted:
    """Store new runs, each with its first event; the commit waits for the disk."""
    arguments: list[object] = [
        [run.run_id for run in runs],
        [run.user_id for run in runs],
        [run.request_id for run in runs],
        [run.request_digest for run in runs],
        [run.conversation_id for run in runs],
        [run.question for run in runs],
        [1] * len(runs),
        [uuid4() for _ in runs],
        [run.event.SerializeToString() for run in runs],
        [_time(run.event) for run in runs],
        replica_id,
        SCHEMA_VERSION,
        [run.max_active for run in runs],
        [run.max_waiting for run in runs],
        [run.sealed.key_id if run.sealed else None for run in runs],
        [run.sealed.ciphertext if run.sealed else None for run in runs],
    ]
    if not any(run.max_user_day_tokens or run.max_day_tokens for run in runs):
        rows = await session.fetch(ACCEPT, *arguments)
        return Inserted(
            created={row["run_id"] for row in rows if row["created"]},
            refused={row["run_id"] for row in rows if row["refused"]},
            unaffordable={},
        )
    rows = await session.fetch(
        ACCEPT_BY_DAY,
        *arguments,
        [held(run) for run in runs],
        [run.max_user_day_tokens for run in runs],
        [run.max_day_tokens for run in runs],
    )
    by_id = {run.run_id: run for run in runs}
    refused = [row for row in rows if row["refused"]]
    return Inserted(
        created={row["run_id"] for row in rows if row["created"]},
        refused={row["run_id"] for row in refused if not row["fits"]},
        unaffordable={
            row["run_id"]: (
                _bound(by_id[row["run_id"]].max_user_day_tokens, row["user_left"]),
                _bound(by_id[row["run_id"]].max_day_tokens, row["day_left"]),
                row["resets_in_s"],
            )
            for row in refused
            if row["fits"]
        },
    )


def _bound(limit: int, left: int | None) -> DayBound | None:
    return None if left is None else DayBound(limit, left)


async def existing_runs(session: Session, run_ids: Sequence[UUID]) -> set[UUID]:
    """Those of ``run_ids`` that are stored."""
    rows = await session.fetch("SELECT run_id FROM runs WHERE run_id = ANY ($1)", run_ids)
    return {row["run_id"] for row in rows}


async def insert_events(
    session: Session,
    replica_id: UUID,
    rows: Sequence[Row],
    targets: Sequence[Target],
    *,
    durable: bool,
    again: bool = False,
) -> Outcome:
    """One statement: the rows of those runs that are ours; in place already is success.

    What is written ``again`` may be of an earlier epoch: it was ours then, and still is.
    """
    arguments: list[object] = [
        "on" if durable else "off",
        [row.run_id for row in rows],
        [row.sequence for row in rows],
        [row.event_id for row in rows],
        [row.epoch for row in rows],
        [row.event.WhichOneof("event") for row in rows],
        [row.event.SerializeToString() for row in rows],
        [_time(row.event) for row in rows],
        [target.run_id for target in targets],
        [target.epoch for target in targets],
        [target.status for target in targets],
        [target.finished for target in targets],
        replica_id,
        [SCHEMA_VERSION] * len(rows),
        [target.first_sequence for target in targets],
        again,
    ]
    special = [row for row in rows if _is_special(row.event)]
    ends = [
        (row.run_id, tokens)
        for row in rows
        if row.event.HasField("run_finished") and (tokens := settled(row.event)) is not None
    ]
    if ends:
        counts = ([run_id for run_id, _ in ends], [tokens for _, tokens in ends])
        stored = await session.fetch(APPEND_SETTLING, *arguments, *_about_people(special), *counts)
    elif special or any(target.finished for target in targets):
        stored = await session.fetch(APPEND_ANY, *arguments, *_about_people(special))
    else:
        stored = await session.fetch(APPEND, *arguments)
    written = {row["run_id"]: row["written"] for row in stored}
    expected = Tally(row.run_id for row in rows)
    conflicts = [r for r in rows if written.get(r.run_id, expected[r.run_id]) < expected[r.run_id]]
    foreign = await _foreign(session, conflicts) if conflicts else set()
    return Outcome(
        lost={t.run_id for t in targets if t.run_id not in written} | foreign,
        written=sum(written.values()),
        inserted=stored[0]["inserted"] if stored else None,
        flushed=stored[0]["flushed"] if stored else None,
    )


def _is_special(event: LogEvent) -> bool:
    """Whether the event concerns more than the log: a request to a person, its end, a wait."""
    return (
        event.HasField("approval_requested") or event.HasField("approval_resolved") or waits(event)
    )


def _about_people(rows: Sequence[Row]) -> list[object]:
    """The arguments from $17 on."""
    asked = [
        (row.run_id, row.event.approval_requested.approval)
        for row in rows
        if row.event.HasField("approval_requested")
    ]
    taken = [
        (row.run_id, approval_id)
        for row in rows
        for approval_id in (
            [row.event.approval_resolved.approval.approval_id]
            if row.event.HasField("approval_resolved")
            else row.event.run_released.dropped_approval_ids
        )
    ]
    resolved = [
        (row.run_id, row.event.approval_resolved.approval)
        for row in rows
        if row.event.HasField("approval_resolved")
    ]
    return [
        [run_id for run_id, _ in asked],
        [UUID(approval.approval_id) for _, approval in asked],
        [approval.SerializeToString() for _, approval in asked],
        [approval.create_time.ToDatetime(tzinfo=UTC) for _, approval in asked],
        [approval.expire_time.ToDatetime(tzinfo=UTC) for _, approval in asked],
        [run_id for run_id, _ in taken],
        [approval_id for _, approval_id in taken],
        [row.run_id for row in rows if waits(row.event)],
        [approval.agent_name for _, approval in asked],
        [",".join(sorted({a.tool for a in approval.actions})) for _, approval in asked],
        [run_id for run_id, _ in resolved],
        [UUID(approval.approval_id) for _, approval in resolved],
        [approval.status for _, approval in resolved],
    ]


async def _foreign(
    session: Session,
    rows: Sequence[Row],
) -> set[UUID]:
    """Runs at whose sequences other events stand than the ones we meant to write."""
    found = await session.fetch(
        STORED_IDS, [row.run_id for row in rows], [row.sequence for row in rows]
    )
    stored = {(row["run_id"], row["sequence"]): row["event_id"] for row in found}
    return {r.run_id for r in rows if stored.get((r.run_id, r.sequence)) != r.event_id}


def _time(event: LogEvent) -> datetime:
    return event.create_time.ToDatetime(tzinfo=UTC)
