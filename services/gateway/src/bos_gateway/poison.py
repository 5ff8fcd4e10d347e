"""When a run that keeps killing its owners is given up. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.common.v1 import AgentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.runlog.v1 import LogEvent

LEASE_EXPIRED = "lease_expired"
"""The last owner died, or was cut off for long: the one reason that counts."""
RELEASED = "released"
"""The last owner let go."""
RESUMED = "resumed"
"""The last owner was frozen or cut off, and took its own runs up again."""

OWNERS_DIED = "OwnersDied"

# Nothing that an owner does over again may count, or a step that kills would never be found out.
_GETS_FURTHER = frozenset(
    {
        "run_accepted",
        "planned",
        "plan_failed",
        "step_finished",
        "revision_started",
        "approval_requested",
        "approval_resolved",
        "cancel_requested",
    }
)


def deaths_without_progress(events: Sequence[LogEvent]) -> int:
    """How many owners have died since the run last got further.

    Planning, a result of a step, or a decision is progress. Another attempt at the same step, its
    trace, and text of an answer that was never finished are not.
    """
    deaths = 0
    for event in reversed(events):
        if event.WhichOneof("event") in _GETS_FURTHER:
            break
        deaths += event.run_adopted.reason == LEASE_EXPIRED
    return deaths


def given_up(deaths: int) -> AgentError:
    """Why the run ends."""
    return AgentError(
        type=OWNERS_DIED,
        message=(
            f"This question was given up: the service stopped {deaths} times in a row while "
            "working on it, each time without getting further."
        ),
    )
