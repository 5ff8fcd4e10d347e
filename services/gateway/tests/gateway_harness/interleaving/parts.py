"""What two owners of a run hold in memory, and what is on its way to PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bos.runlog.v1 import LogEvent
from bos_gateway.core.decide import Compose, RunStep

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from bos_gateway.core.decide import Command
    from bos_gateway.core.run_state import RunState
    from bos_gateway.ownership.owners import Ownership
    from bos_gateway.run_log.records import Append


SAFE, ONCE = "safe", "once"
"""Agents: one that may be asked twice, and one that may not."""
FAILS = "fail"
"""Task of a step that cannot succeed; another plan does without it."""


def event(now: datetime, **kind: Any) -> LogEvent:
    made = LogEvent(**kind)
    made.create_time.FromDatetime(now)
    return made


@dataclass
class Held:
    """A run as its owner has it in memory."""

    epoch: int
    state: RunState
    inbox: list[LogEvent] = field(default_factory=list)
    active: dict[object, Command] = field(default_factory=dict)
    begun: set[object] = field(default_factory=set)
    ended: set[object] = field(default_factory=set)
    sent: list[Append] = field(default_factory=list)
    """Applied, and on their way to the log; repeated until their outcome is known."""


@dataclass
class Owner:
    """A process: an identity, a session of its own, and what it keeps in memory."""

    session: Any
    ownership: Ownership
    held: Held | None = None
    holds_lease: bool = False


@dataclass
class Late:
    """A statement that was sent by a caller that no longer waits for it, or will repeat it."""

    session: Any
    replica_id: UUID
    appends: list[Append]


def key_of(command: Command) -> object:
    match command:
        case RunStep(step_id=step_id):
            return ("step", step_id)
        case Compose():
            return "compose"
        case _:
            return "plan"
