"""The effect of classifying instructions: one call of the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from bos.agent.v1 import INSTRUCTION_MODE_ENHANCE, INSTRUCTION_MODE_OVERRIDE
from bos.common.v1 import Usage
from bos.planner.v1 import ClassifyInstructionsRequest
from bos.runlog.v1 import InstructionsClassified, LogEvent
from bos_chassis.errors import from_rpc_error
from bos_gateway.decide import steps_deadline
from bos_gateway.effects import PLANNER
from bos_gateway.failures import error_trace
from bos_gateway.reaching import answered
from bos_gateway.results import clamp_usage, sound_trace

if TYPE_CHECKING:
    from bos_gateway.decide import Classify
    from bos_gateway.effects import EffectContext

_TIMEOUT_S = 20.0


async def classify(run: EffectContext, command: Classify) -> None:
    """Ask the planner; ends in InstructionsClassified. What goes wrong leaves the task in force."""
    step = run.state.steps[command.step_id]
    approval = step.approval
    assert approval is not None
    timeout_s = min(_TIMEOUT_S, run.left_s(steps_deadline(run.state, run.now())))
    request = ClassifyInstructionsRequest(
        task=step.sub_task.task if step.sub_task else step.step.task,
        instructions=approval.user_instructions,
        proposal="\n".join(action.summary for action in approval.actions),
    )
    if command.token_budget is not None:
        request.token_budget = command.token_budget
    classified = taken_to_add(command)
    try:
        answer = await answered(
            run.services.planner.ClassifyInstructions,
            request,
            timeout_s=timeout_s,
            metadata=run.token("", [PLANNER], timeout_s),
        )
    except grpc.RpcError as error:
        failure = from_rpc_error(error)
        text = f"The instructions could not be classified and add to the task: {failure.message}"
        now = run.now()
        classified.trace.append(error_trace(PLANNER, type(failure).__name__, text, now))
        # Nobody will say what a call that broke off has consumed.
        classified.usage.CopyFrom(Usage(unreported_tokens=command.token_budget or 0))
    else:
        answer.DiscardUnknownFields()
        if answer.mode == INSTRUCTION_MODE_OVERRIDE:
            classified.mode = answer.mode
        classified.trace.extend(sound_trace(answer.trace, run.now()))
        clamp_usage(answer.usage)
        classified.usage.CopyFrom(answer.usage)
    await run.emit(run.stamped(LogEvent(instructions_classified=classified)))


def taken_to_add(command: Classify) -> InstructionsClassified:
    """What holds as long as nothing else is known."""
    return InstructionsClassified(
        revision=command.revision,
        step_id=command.step_id,
        approval_id=command.approval_id,
        mode=INSTRUCTION_MODE_ENHANCE,
    )
