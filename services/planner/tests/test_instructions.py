"""Classification of approval instructions over gRPC, with a scripted model."""

from typing import Any

import pytest

from bos.agent.v1 import InstructionMode
from bos.planner.v1 import ClassifyInstructionsRequest, ClassifyInstructionsResponse

ENHANCE = InstructionMode.INSTRUCTION_MODE_ENHANCE
OVERRIDE = InstructionMode.INSTRUCTION_MODE_OVERRIDE


async def classify(rig: Any, instructions: str) -> ClassifyInstructionsResponse:
    request = ClassifyInstructionsRequest(
        task="Send the offer to Ada", instructions=instructions, proposal="Send “Offer” to Ada"
    )
    answer: ClassifyInstructionsResponse = await rig.stub.ClassifyInstructions(request, timeout=10)
    return answer


@pytest.mark.parametrize(
    ("instructions", "mode"), [("with a bcc to me", ENHANCE), ("write to Eve instead", OVERRIDE)]
)
@pytest.mark.requirement("M-17")
async def test_model_classifies_by_task_proposal_and_instructions(
    rig: Any, instructions: str, mode: InstructionMode
) -> None:
    """The scripted model answers only if it sees all three."""
    answer = await classify(rig, instructions)
    assert answer.mode == mode
    assert answer.usage.model_calls == 1
    word = "enhance" if mode == ENHANCE else "override"
    assert [event.message for event in answer.trace] == [f"Instructions classified as {word}."]
    # Its usage is counted in the same metric as all other calls.
    labels = {"agent": "hitl_classifier", "model": "scripted", "direction": "input"}
    counted = rig.telemetry.registry.get_sample_value("bos_model_tokens_total", labels)
    assert counted == answer.usage.input_tokens > 0


async def test_invalid_classification_adds_to_the_task(rig: Any) -> None:
    """The scripted model has no reply for this request, so its answer does not match the schema."""
    answer = await classify(rig, "something that has no script")
    assert answer.mode == ENHANCE
    assert len(answer.trace) == 1


async def test_without_a_model_instructions_add_to_the_task(start: Any) -> None:
    rig = await start(models=False)
    answer = await classify(rig, "do something else instead")
    assert answer.mode == ENHANCE
    assert answer.trace[0].message == (
        "Instructions classified as enhance. No model is configured."
    )
    assert rig.model.calls == 0
