"""Taint: whether untrusted content (cells, pages, mails) is part of a step or run. Pure.

Nothing here believes what an agent leaves out: taint is only ever added to. It goes from what a run
begins with into every step, since the planner has read it; from a result into all that depends
on it, through failed and skipped steps as well; from an attempt into every plan that was made after
it; and from a proposal into what is done once it is approved.
"""

from __future__ import annotations

from bos.agent.v1 import AgentResult
from bos.runlog.v1 import RunAccepted
from bos_gateway.core.run_state import RunState, StepState


def begins_tainted(accepted: RunAccepted) -> bool:
    """Whether something of what a run begins with is tainted; frozen as ``RunAccepted.tainted``."""
    return (
        accepted.request.tainted
        or accepted.long_term_memory.tainted
        or any(message.tainted for message in accepted.conversation_history)
        or any(turn.tainted for turn in accepted.clarifications)
    )


def is_tainted(state: RunState, step: StepState) -> bool:
    """Whether the step rests on tainted content: on what it is handed, or on a plan made of it.

    A revised plan is made by a planner that has read what came of earlier attempts, so its steps
    may repeat anything of that without depending on it.
    """
    if state.request.tainted or step.tainted:
        return True
    handed = (state.outputs[needed] for needed in step.needs if needed in state.outputs)
    if any(result.tainted for result in handed):
        return True
    return any(_holds(each) for attempt in state.past for each in attempt.steps.values())


def outcome_is_tainted(state: RunState) -> bool:
    """Whether the run's outcome rests on tainted content: on what it began with, or on any step."""
    steps = [step for attempt in state.past for step in attempt.steps.values()]
    return state.request.tainted or any(map(_holds, [*steps, *state.steps.values()]))


def mark(result: AgentResult, *, tainted: bool) -> None:
    """Taint a result, what it proposes, its files and charts, if it says so or ``tainted`` does."""
    if not (tainted or result.tainted):
        return
    result.tainted = True
    for action in result.proposed_actions:
        action.tainted = True
    for file in result.files:
        file.tainted = True
    for chart in result.charts:
        for image in chart.images:
            image.tainted = True
        if chart.HasField("specification"):
            chart.specification.tainted = True


def _holds(step: StepState) -> bool:
    return step.tainted or (step.result is not None and step.result.tainted)
