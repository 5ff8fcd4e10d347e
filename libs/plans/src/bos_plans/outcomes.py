"""Outcomes of steps, and the outcome of a run that follows from them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.common.v1 import Outcome
from bos_errors import AgentErrorType

NOT_DONE: Final = frozenset(
    {Outcome.OUTCOME_DENIED, Outcome.OUTCOME_EXPIRED, Outcome.OUTCOME_SKIPPED}
)
"""Outcomes of steps whose work was not done, and which did not fail."""
NOTHING_TO_REFER_TO: Final = NOT_DONE | {Outcome.OUTCOME_NOT_IN_SOURCE}
"""Outcomes of steps without anything that another step could be made of."""

_OF_SUCCESSES = frozenset(
    {
        *(Outcome.OUTCOME_ANSWERED, Outcome.OUTCOME_EMPTY, Outcome.OUTCOME_NOT_IN_SOURCE),
        *(Outcome.OUTCOME_PARTLY, Outcome.OUTCOME_PREMISE_REFUTED, Outcome.OUTCOME_CUT_OFF),
    }
)
_OF_SKIPS: dict[str, Outcome] = {
    AgentErrorType.DENIED_BY_USER: Outcome.OUTCOME_DENIED,
    AgentErrorType.HITL_TIMEOUT: Outcome.OUTCOME_EXPIRED,
}
# What says most of a run without any answer, first.
_WITHOUT_ANSWER = (
    Outcome.OUTCOME_DENIED,
    Outcome.OUTCOME_EXPIRED,
    Outcome.OUTCOME_NOT_IN_SOURCE,
    Outcome.OUTCOME_SKIPPED,
)
# What an answer lacks, the more serious first; any of it makes the answer of a run lack it.
_LACKS = (Outcome.OUTCOME_PARTLY, Outcome.OUTCOME_CUT_OFF, Outcome.OUTCOME_PREMISE_REFUTED)


@dataclass(frozen=True, slots=True)
class EndedStep:
    """What the outcome of a run depends on, of one of its steps."""

    outcome: Outcome
    """Unspecified: the step failed or did not end."""
    needs: frozenset[str] = frozenset()
    """Steps that it rests on."""


def step_outcome(result: AgentResult) -> Outcome:
    """Outcome of a step's result; unspecified if it failed or did not end.

    An agent's word counts for what succeeded; for what was skipped, the reason does.
    """
    match result.status:
        case AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED:
            said = result.outcome
            return said if said in _OF_SUCCESSES else Outcome.OUTCOME_ANSWERED
        case AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED:
            return _OF_SKIPS.get(result.error.type, Outcome.OUTCOME_SKIPPED)
        case _:
            return Outcome.OUTCOME_UNSPECIFIED


def run_outcome(steps: Mapping[str, EndedStep], *, cut_off: bool = False) -> Outcome:
    """Outcome of a run, from those of its steps; unspecified if it failed.

    The steps at the ends of the plan count, as the others were work for them: a list that was found
    and a mail that was denied make a run that was denied. A skipped step stands for what it lacked.

    Args:
        steps: The steps by id; none make an answered run, which a model answers.
        cut_off: Whether the answer reached its length limit.
    """
    said = {step.outcome for step in steps.values()}
    needed = {need for step in steps.values() for need in step.needs}
    # Steps that need each other are all ends, so that every run has an outcome.
    ends = {_cause(steps, step_id) for step_id in (steps.keys() - needed or steps)}
    found = _combined(said, ends) if steps else Outcome.OUTCOME_ANSWERED
    return Outcome.OUTCOME_CUT_OFF if cut_off and found == Outcome.OUTCOME_ANSWERED else found


def _combined(said: set[Outcome], ends: set[Outcome]) -> Outcome:
    """Outcome of a run, from those of all its steps and of those at its ends."""
    without = [each for each in _WITHOUT_ANSWER if each in ends]
    failed = Outcome.OUTCOME_UNSPECIFIED in said
    if not ends - set(without) - {Outcome.OUTCOME_UNSPECIFIED}:
        if failed:
            return Outcome.OUTCOME_PARTLY if said & _OF_SUCCESSES else Outcome.OUTCOME_UNSPECIFIED
        return without[0]
    if failed or without or said & set(_WITHOUT_ANSWER):
        return Outcome.OUTCOME_PARTLY
    if lacks := [each for each in _LACKS if each in said]:
        return lacks[0]
    return Outcome.OUTCOME_EMPTY if ends == {Outcome.OUTCOME_EMPTY} else Outcome.OUTCOME_ANSWERED


def _cause(steps: Mapping[str, EndedStep], step_id: str) -> Outcome:
    """Outcome of a step; of one that was skipped, of what it lacked."""
    own = steps[step_id].outcome
    if own != Outcome.OUTCOME_SKIPPED:
        return own
    lacked = {steps[each].outcome for each in _upstream(steps, step_id)}
    return next((each for each in _WITHOUT_ANSWER if each in lacked), own)


def _upstream(steps: Mapping[str, EndedStep], step_id: str) -> Iterator[str]:
    """Steps that a step rests on, directly or by way of others."""
    open_, found = [step_id], set[str]()
    while open_:
        for need in steps[open_.pop()].needs:
            if need in steps and need not in found:
                found.add(need)
                open_.append(need)
                yield need
