"""Classifies an approver's instructions: whether they add to a step's task or replace it."""

from __future__ import annotations

from bos.agent import v1 as agent
from bos.planner.v1 import ClassifyInstructionsRequest
from bos.runlog.v1 import InstructionsClassified, LogEvent
from bos_errors import BosError
from bos_gateway.core import failures, result_limits
from bos_gateway.core.decide import Classify, steps_deadline
from bos_gateway.effects.call_retries import answered
from bos_gateway.effects.context import PLANNER, EffectContext

_CLASSIFY_TIMEOUT_S = 20.0


async def classify(run: EffectContext, command: Classify) -> None:
    """Ask the planner how an approver's instructions relate to the task of a step.

    Ends in InstructionsClassified. What goes wrong leaves the task in force.
    """
    step = run.state.steps[command.step_id]
    approval = step.approval
    assert approval is not None
    timeout_s = min(_CLASSIFY_TIMEOUT_S, run.left_s(steps_deadline(run.state, run.now())))
    request = ClassifyInstructionsRequest(
        task=step.sub_task.task if step.sub_task else step.step.task,
        instructions=approval.user_instructions,
        proposal="\n".join(action.summary for action in approval.actions),
        token_budget=command.token_budget,
        model=run.state.request.request.model,
    )
    classified = taken_to_add(command)
    try:
        ask, token = run.deps.planner.ClassifyInstructions, run.token(PLANNER, timeout_s)
        restart_s = run.deps.settings.restart_wait_s
        answer = await answered(ask, request, timeout_s, token, restart_s=restart_s)
    except BosError as error:
        text = f"The instructions could not be classified and add to the task: {error.message}"
        trace = failures.error_trace(PLANNER, type(error).__name__, text, run.now())
        classified.trace.append(trace)
        # What a call that broke off has consumed will not be reported.
        classified.usage.unreported_tokens = command.token_budget or 0
    else:
        answer.DiscardUnknownFields()
        if answer.mode == agent.INSTRUCTION_MODE_OVERRIDE:
            classified.mode = answer.mode
        result_limits.sound_trace(answer.trace, run.now())
        classified.trace.extend(answer.trace)
        result_limits.clamp_usage(answer.usage)
        classified.usage.CopyFrom(answer.usage)
    await run.emit(run.stamped(LogEvent(instructions_classified=classified)))


def taken_to_add(command: Classify) -> InstructionsClassified:
    """Instructions that add to the task: the default while nothing else is known."""
    return InstructionsClassified(
        revision=command.revision,
        step_id=command.step_id,
        approval_id=command.approval_id,
        mode=agent.INSTRUCTION_MODE_ENHANCE,
    )
