"""Instructions instead of a plain approval lead to another proposal, never past it."""

import grpc
import pytest
from gateway_harness.harness import Harness, result_of

from bos.agent.v1 import (
    INSTRUCTION_MODE_OVERRIDE,
    InstructionMode,
)
from bos_errors import InvalidArgument, from_rpc_error
from bos_testkit.deploy import DeployAgent

from .test_approvals import APPROVE, DENY, Following, agent, patient, respond

__all__ = ["agent"]


@pytest.mark.parametrize(
    ("mode", "heading", "overridden"),
    [
        (INSTRUCTION_MODE_OVERRIDE, "### User Override Instructions", True),
        (None, "### User Enhanced Instructions", False),
    ],
    ids=["override", "not classified"],
)
@pytest.mark.requirement("M-17", "M-18", "M-19", "M-20")
async def test_instructions_lead_to_another_proposal(
    harness: Harness,
    agent: DeployAgent,
    mode: InstructionMode | None,
    heading: str,
    overridden: bool,
) -> None:
    """What cannot be classified adds to the task."""
    harness.planner.mode = mode
    async with patient(harness) as gateway:
        following = Following(gateway)
        first = await following.asked()
        await respond(gateway, first.approval_id, APPROVE, "deploy shop 1.3")
        second = await following.asked(2)
        assert second.approval_id != first.approval_id
        assert agent.landed == {}
        assert heading in second.task_description
        assert [action.summary for action in second.actions] == ["Deploy shop 1.3"]
        await respond(gateway, second.approval_id, APPROVE)
        events = await following.end()
    (asked,) = harness.planner.instructions
    assert (asked.task, asked.instructions) == ("deploy shop 1.2", "deploy shop 1.3")
    assert asked.proposal == "Deploy shop 1.2"
    assert agent.landed == {"deploy shop 1.3": 1}
    result = result_of(events, "a")
    assert heading in result.task_description
    assert result.task_overridden is overridden
    usage = events[-1].run_finished.response.metadata.usage
    assert usage.input_tokens == (0 if mode is None else 30)


async def test_instructions_without_an_approval_are_refused(
    harness: Harness, agent: DeployAgent
) -> None:
    async with patient(harness) as gateway:
        following = Following(gateway)
        approval = await following.asked()
        for decision, instructions in ((DENY, "but"), (0, "")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await respond(gateway, approval.approval_id, decision, instructions)
            assert isinstance(from_rpc_error(caught.value), InvalidArgument)
        await respond(gateway, approval.approval_id, DENY)
        await following.end()
