"""What two owners of a run hold in memory, and what is on its way to PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from bos.runlog.v1 import LogEvent
from bos_gateway.decide import Compose, RunStep
from bos_gateway.orchestrator import Orchestrator
from bos_gateway.tail import UnflushedTail

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from bos_gateway.decide import Command
    from bos_gateway.ownership import Ownership
    from bos_gateway.run_log import Append
    from bos_gateway.state import RunState


SAFE, ONCE = "safe", "once"
"""Agents: one that may be asked twice, and one that may not."""
FAILS = "fail"
"""Task of a step that cannot succeed; another plan does without it."""


def event(now: datetime, **kind: Any) -> LogEvent:
    made = LogEvent(**kind)
    made.create_time.FromDatetime(now)
    return made


def admissible(state: RunState, events: list[LogEvent]) -> list[LogEvent]:
    """The product's own filter of what is no longer true."""
    return Orchestrator._admissible(
        cast("Any", SimpleNamespace(_state=state, _dropped=set())), events
    )


@dataclass
class Held:
    """A run as its owner has it in memory."""

    epoch: int
    state: RunState
    inbox: list[LogEvent] = field(default_factory=list)
    active: dict[object, Command] = field(default_factory=dict)
    begun: set[object] = field(default_factory=set)
    ended: set[object] = field(default_factory=set)
    sent: Append | None = None
    """A statement whose outcome is not known; it is repeated until it is."""
    in_doubt: bool = False
    """It was sent before, and may have been in the log for all to see."""


@dataclass
class Owner:
    """A process: an identity, a session of its own, and what it keeps in memory."""

    session: Any
    ownership: Ownership
    tail: UnflushedTail = field(default_factory=lambda: UnflushedTail(100_000))
    held: Held | None = None
    holds_lease: bool = False
    reconnects: bool = False
    """PostgreSQL crashed, and it has not written its tail again yet."""
    unanswered: list[Append] = field(default_factory=list)
    """Sent for runs it has stopped driving since; its writer repeats them all the same."""

    @property
    def restoring(self) -> bool:
        """Whether something that was seen may be missing until it has reconnected."""
        doubt = self.held is not None and self.held.in_doubt
        return self.reconnects and bool(len(self.tail) or self.unanswered or doubt)


@dataclass
class Late:
    """A statement that was sent by somebody who no longer waits for it."""

    session: Any
    replica_id: UUID
    append: Append
    keeper: Owner | None
    """Whose writer still has it, to send it again."""
    again: bool = False


@dataclass
class Unflushed:
    """A commit that a crash of PostgreSQL would undo."""

    sequences: list[int]
    status_before: int
    kept: bool
    """Whether somebody who lives will write it again."""


def key_of(command: Command) -> object:
    match command:
        case RunStep(step_id=step_id):
            return ("step", step_id)
        case Compose():
            return "compose"
        case _:
            return "plan"
