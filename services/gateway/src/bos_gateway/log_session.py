"""What the log writer says to PostgreSQL: one statement each, over one session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from bos_gateway.day_budget import held, settled
from bos_gateway.log_items import Row, time_of
from bos_gateway.log_statements import ACCEPT, APPEND, APPEND_ANY, STORED_IDS
from bos_gateway.state import waits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos.runlog.v1 import LogEvent
    from bos_gateway.log_items import Append, NewRun

    Session = asyncpg.Connection[asyncpg.Record]

SCHEMA_VERSION = 1
"""The newest schema of events that this version reads, and the one it writes."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of new runs; those in neither have a request id that is known already."""

    created: set[UUID]
    refused: set[UUID]
    """Their users have as many unfinished runs as they may have."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A run as a statement that appends to it found it."""

    ours: bool
    """Owned by this replica at that epoch, and not ended."""
    last_sequence: int
    written: bool


async def insert_runs(session: Session, replica_id: UUID, runs: Sequence[NewRun]) -> Inserted:
    """Store new runs, each with its first event."""
    rows = await session.fetch(
        ACCEPT,
        [run.run_id for run in runs],
        [run.user_id for run in runs],
        [run.request_id for run in runs],
        [run.request_digest for run in runs],
        [run.conversation_id for run in runs],
        [run.question for run in runs],
        [1] * len(runs),
        [uuid4() for _ in runs],
        [run.event.SerializeToString() for run in runs],
        [time_of(run.event) for run in runs],
        replica_id,
        SCHEMA_VERSION,
        [run.max_active for run in runs],
        [run.max_waiting for run in runs],
        [run.sealed.key_id if run.sealed else None for run in runs],
        [run.sealed.ciphertext if run.sealed else None for run in runs],
        [held(run.event) if run.counts_for_day else None for run in runs],
    )
    return Inserted(
        created={row["run_id"] for row in rows if row["created"]},
        refused={row["run_id"] for row in rows if row["refused"]},
    )


async def existing_runs(session: Session, run_ids: Sequence[UUID]) -> set[UUID]:
    """Those of ``run_ids`` that are stored."""
    rows = await session.fetch("SELECT run_id FROM runs WHERE run_id = ANY ($1)", run_ids)
    return {row["run_id"] for row in rows}


async def insert_events(
    session: Session, replica_id: UUID, runs: Sequence[Sequence[Append]]
) -> dict[UUID, Standing]:
    """Append to several runs in one statement.

    Args:
        session: The writer's.
        replica_id: Whose runs they must be.
        runs: For each run, what follows on one another in its log, of one epoch.

    Returns:
        What was found of each run; a run that is not stored is missing.
    """
    rows = [row for appends in runs for append in appends for row in append.rows]
    events = [(a.run_id, event) for appends in runs for a in appends for event in a.events]
    arguments: list[object] = [
        [appends[0].run_id for appends in runs],
        [appends[0].epoch for appends in runs],
        [appends[0].first_sequence - 1 for appends in runs],
        [appends[-1].last_sequence for appends in runs],
        [next((a.status for a in reversed(appends) if a.status), 0) for appends in runs],
        [any(append.finished for append in appends) for appends in runs],
        replica_id,
        *([getattr(row, field) for row in rows] for field in Row._fields),
        [SCHEMA_VERSION] * len(rows),
    ]
    if any(_is_special(event) for _, event in events):
        ends = [(run_id, n) for run_id, event in events if (n := settled(event)) is not None]
        counts = ([run_id for run_id, _ in ends], [tokens for _, tokens in ends])
        found = await session.fetch(APPEND_ANY, *arguments, *_about_people(events), *counts)
    else:
        found = await session.fetch(APPEND, *arguments)
    return {
        row["run_id"]: Standing(row["ours"], row["last_sequence"], row["written"]) for row in found
    }


async def are_stored(session: Session, append: Append) -> bool:
    """Whether these very events stand in their places of the log."""
    found = await session.fetch(STORED_IDS, append.run_id, [row.sequence for row in append.rows])
    return {row["event_id"] for row in found} == {row.event_id for row in append.rows}


def _is_special(event: LogEvent) -> bool:
    """Whether the event concerns more than the log: a request to a person, its end, a wait."""
    return (
        event.HasField("run_finished")
        or event.HasField("approval_requested")
        or event.HasField("approval_resolved")
        or waits(event)
    )


def _about_people(events: Sequence[tuple[UUID, LogEvent]]) -> list[object]:
    """The arguments $16 to $28."""
    asked = [
        (run_id, event.approval_requested.approval)
        for run_id, event in events
        if event.HasField("approval_requested")
    ]
    resolved = [
        (run_id, event.approval_resolved.approval)
        for run_id, event in events
        if event.HasField("approval_resolved")
    ]
    taken = [(run_id, approval.approval_id) for run_id, approval in resolved]
    for run_id, event in events:
        taken += [(run_id, each) for each in event.run_released.dropped_approval_ids]
    return [
        [run_id for run_id, _ in asked],
        [UUID(approval.approval_id) for _, approval in asked],
        [approval.SerializeToString() for _, approval in asked],
        [approval.create_time.ToDatetime(tzinfo=UTC) for _, approval in asked],
        [approval.expire_time.ToDatetime(tzinfo=UTC) for _, approval in asked],
        [run_id for run_id, _ in taken],
        [approval_id for _, approval_id in taken],
        [run_id for run_id, event in events if waits(event)],
        [approval.agent_name for _, approval in asked],
        [",".join(sorted({a.tool for a in approval.actions})) for _, approval in asked],
        [run_id for run_id, _ in resolved],
        [UUID(approval.approval_id) for _, approval in resolved],
        [approval.status for _, approval in resolved],
    ]
