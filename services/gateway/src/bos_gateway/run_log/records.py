"""Records for the log writer: new runs, and events of runs that this replica owns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID, uuid4

from bos.gateway.v1 import RunStatus
from bos.runlog.v1 import LogEvent
from bos_gateway.key_ring import SealedSecrets
from bos_postgres.audit import AuditEntry


class Row(NamedTuple):
    """One event as it stands in the log."""

    run_id: UUID
    sequence: int
    event_id: UUID
    epoch: int
    kind: str
    payload: bytes
    created_at: datetime
    step_id: str | None


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run to be accepted."""

    run_id: UUID
    user_id: str
    request_id: str
    request_digest: bytes
    conversation_id: str
    question: str
    event: LogEvent
    """The RunAccepted event."""
    max_active: int = 0
    """Most unfinished runs that its user may have, beside those that wait; 0: no bound."""
    max_waiting: int = 0
    """Most runs of its user that may wait for an approval; 0: no limit."""
    sealed: SealedSecrets | None = None
    """Its credentials, stored and deleted with the run."""
    counts_for_day: bool = False
    """Whether its tokens count against a bound of the day."""
    audit: Sequence[AuditEntry] = ()
    """Stands if and only if the run is stored."""

    @property
    def size(self) -> int:
        """Bytes to be written, about."""
        return self.event.ByteSize()

    def follows(self, _: NewRun) -> bool:
        """Whether both may be of one run: it begins but once."""
        return False


@dataclass(frozen=True, slots=True)
class Append:
    """Events of one run, in order, to be written together."""

    run_id: UUID
    epoch: int
    first_sequence: int
    events: Sequence[LogEvent]
    status: RunStatus | None = None
    """The run's new status, if these events change it."""
    finished: bool = False
    audit: Sequence[AuditEntry] = ()
    """Stands if and only if the events do."""
    rows: Sequence[Row] = field(init=False)
    """The events as they are to stand in the log, each with an identity: repeating a write cannot
    double it. Made here, so that an event that cannot be written fails by itself."""

    def __post_init__(self) -> None:
        """Give every event its identity."""
        rows = tuple(
            Row(
                *(self.run_id, sequence, uuid4(), self.epoch, event.WhichOneof("event") or ""),
                *(event.SerializeToString(), time_of(event), attempted_step(event)),
            )
            for sequence, event in enumerate(self.events, self.first_sequence)
        )
        object.__setattr__(self, "rows", rows)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last of these events."""
        return self.first_sequence + len(self.events) - 1

    def follows(self, earlier: Append) -> bool:
        """Whether it continues the log where ``earlier`` ends, by the same owner."""
        return (self.epoch, self.first_sequence) == (earlier.epoch, earlier.last_sequence + 1)

    @property
    def size(self) -> int:
        """Bytes to be written, about."""
        return sum(len(row.payload) for row in self.rows)


def attempted_step(event: LogEvent) -> str | None:
    """The step of which the event begins or ends an attempt, if it does; tokens end by it."""
    match event.WhichOneof("event"):
        case "step_dispatched":
            return event.step_dispatched.step_id
        case "step_finished":
            return event.step_finished.step_id
        case "approval_requested":
            return event.approval_requested.approval.step_id
    return None


def time_of(event: LogEvent) -> datetime:
    """Time of the event (UTC)."""
    return event.create_time.ToDatetime(tzinfo=UTC)
