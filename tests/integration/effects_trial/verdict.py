"""What became of the actions of a trial, compared with what landed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos_errors import AgentErrorType

from .actions import ASKABLE, KINDS, Action, Kind

_SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
_SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED


@dataclass
class Figures:
    approved: int = 0
    landed: int = 0
    unknown: int = 0
    """Reported as of unknown outcome."""
    twice: int = 0
    refused: int = 0
    """Actions not approved, or not as they are, and that did not land."""
    kills: int = 0
    """While such actions were proposed, decided about and performed."""
    longest_s: float = 0.0
    """From the question to the end of the run, with all kills and waits."""

    def line(self, kind: Kind) -> str:
        return (
            f"{kind}: approved={self.approved} landed={self.landed} unknown={self.unknown} "
            f"twice={self.twice} refused={self.refused} kills={self.kills} "
            f"longest_s={self.longest_s:.0f}"
        )


@dataclass
class Verdict:
    """Figures by kind, and what must not have happened."""

    figures: dict[Kind, Figures] = field(
        default_factory=lambda: {kind: Figures() for kind in KINDS}
    )
    breaches: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """What is said of each unknown outcome, and how often it landed."""
    ends: Counter[str] = field(default_factory=Counter)
    """How steps ended: by type of error, or as done."""


def judge(
    actions: Iterable[Action],
    results: Mapping[str, AgentResult],
    landed: Mapping[str, int],
) -> Verdict:
    """Compare what runs said with what landed.

    Args:
        actions: What was asked for.
        results: The step's result by label; there is none of an undecided action.
        landed: How often each label has landed.
    """
    verdict = Verdict()
    for action in actions:
        _judge(action, results.get(action.label), landed, verdict)
    return verdict


def _judge(
    action: Action, result: AgentResult | None, landed: Mapping[str, int], verdict: Verdict
) -> None:
    figures, times = verdict.figures[action.kind], landed.get(action.label, 0)
    error = "" if result is None else result.error.type
    verdict.ends[error or ("waiting" if result is None else "done")] += 1
    figures.landed += bool(times)
    figures.twice += times > 1
    if action.person == "approves":
        figures.approved += 1
        unknown = error == AgentErrorType.OUTCOME_UNKNOWN
        figures.unknown += unknown
        if unknown and result is not None:
            said = f"{action.label} ({action.kind}, {action.kill}) landed {times} times"
            verdict.unknown.append(f"{said}: {result.error.message}")
        problem = _approved_problem(action, result, times, unknown=unknown)
    else:
        figures.refused += not times
        problem = _refused_problem(action, result, times + landed.get(action.changed, 0))
    if problem:
        said = "" if result is None else f": {error} {result.error.message}"
        verdict.breaches.append(f"{action.label} ({action.kind}, {action.kill}) {problem}{said}")


def _approved_problem(
    action: Action, result: AgentResult | None, times: int, *, unknown: bool
) -> str:
    if times > 1:
        return f"landed {times} times"
    if result is None:
        return "has no result"
    if unknown:
        # The person who was asked about it has said no, so it may have landed or not.
        return "is unknown, though the other side knows" if action.kind in ASKABLE else ""
    if result.status == _SUCCEEDED:
        return "" if times else "is reported as done and has not landed"
    return "is reported as not done and has landed" if times else "was given up"


def _refused_problem(action: Action, result: AgentResult | None, times: int) -> str:
    if times:
        return f"was not approved and landed {times} times"
    if action.person == "never answers":
        return "" if result is None else "ended before a decision"
    if result is None:
        return "has no result"
    if action.person == "denies":
        return "" if result.status == _SKIPPED else "was denied and is not skipped"
    return "" if result.status != _SUCCEEDED else "was changed and is reported as done"
