"""Quarantine of poison runs: what counts as progress, and how a run without any is ended. Pure.

Failures are counted in the run's row by the statements that free it (``owners.py``): the death
of an owner, and each release after a failure. An owner that dies of reading the run's log could
write nothing into it.
"""

from __future__ import annotations

from typing import Final

from bos.common.v1 import AgentError
from bos.gateway.v1 import RUN_STATUS_FAILED, OrchestratorResponse
from bos.runlog.v1 import LogEvent, RunFinished

LEASE_EXPIRED = "lease_expired"
"""The last owner died, was cut off for long, or failed: it left no word in the log."""
RELEASED = "released"
"""The last owner released it, and said so."""
RESUMED = "resumed"
"""The last owner was frozen or cut off, and took its own runs up again."""

SUSPECT_FROM: Final = 2
"""Failures from which a run is driven apart from others like it. The first is no suspicion: it
befalls all that a replica drives."""
UNREADABLE_S: Final = 3600.0
"""Time after which a run that no version could read ends: a newer version is not coming."""

OWNERS_DIED = "OwnersDied"
UNREADABLE = "RunUnreadable"

GETS_FURTHER: Final = (
    "run_accepted",
    "planned",
    "plan_failed",
    "step_finished",
    "revision_started",
    "approval_requested",
    "approval_resolved",
    "cancel_requested",
)
"""Kinds of events that are progress: planning, a result of a step, a decision.

Nothing that an owner does over again may count, or a step that kills would never be found out:
another attempt at it, its trace, text of an answer that was never finished.
"""

_GIVEN_UP = {
    OWNERS_DIED: "the service failed {failures} times in a row while working on it, each time "
    "without getting further.",
    UNREADABLE: "what the service had stored about it could not be read any more. Ask it again.",
}


def ended_unread(run_id: str, error_type: str, failures: int) -> LogEvent:
    """The end of a run whose log kills, or cannot be read by, each owner."""
    message = "This question was given up: " + _GIVEN_UP[error_type].format(failures=failures)
    response = OrchestratorResponse(
        run_id=run_id,
        status=RUN_STATUS_FAILED,
        answer=message,
        error=AgentError(type=error_type, message=message),
    )
    return LogEvent(run_finished=RunFinished(response=response))
