"""When a run that nobody can get further is given up. Pure.

Deaths are counted by the statement of adoption, in the run's row: an owner that dies of reading the
run's log could write nothing into it.
"""

from __future__ import annotations

from bos.common.v1 import AgentError
from bos.gateway.v1 import RUN_STATUS_FAILED, OrchestratorResponse
from bos.runlog.v1 import LogEvent, RunFinished

LEASE_EXPIRED = "lease_expired"
"""The last owner died, or was cut off for long: the one reason that counts."""
RELEASED = "released"
"""The last owner let go."""
RESUMED = "resumed"
"""The last owner was frozen or cut off, and took its own runs up again."""

OWNERS_DIED = "OwnersDied"
UNREADABLE = "RunUnreadable"

GETS_FURTHER = frozenset(
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
"""Kinds of events that are progress: planning, a result of a step, a decision.

Nothing that an owner does over again may count, or a step that kills would never be found out:
another attempt at it, its trace, text of an answer that was never finished.
"""


def given_up(deaths: int) -> AgentError:
    """Why the run ends."""
    return AgentError(
        type=OWNERS_DIED,
        message=(
            f"This question was given up: the service stopped {deaths} times in a row while "
            "working on it, each time without getting further."
        ),
    )


def unreadable() -> AgentError:
    """Why a run ends whose log cannot be read, or not be made sense of, for as long as it lasts."""
    return AgentError(
        type=UNREADABLE,
        message=(
            "This question was given up: what the service had stored about it could not be read "
            "any more. Ask it again."
        ),
    )


def ended_unread(run_id: str, error: AgentError) -> LogEvent:
    """The end of a run whose log kills, or defies, whoever wants to read it."""
    response = OrchestratorResponse(
        run_id=run_id, status=RUN_STATUS_FAILED, answer=error.message, error=error
    )
    return LogEvent(run_finished=RunFinished(response=response))
