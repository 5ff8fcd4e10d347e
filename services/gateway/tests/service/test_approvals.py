"""A run asks a person before it acts: propose, approve, perform, on a real PostgreSQL."""

from __future__ import annotations

import grpc
import pytest
from gateway_harness.answering import (
    APPROVE,
    DENY,
    Following,
    listed,
    refusal,
    respond,
    until_released,
)
from gateway_harness.harness import Harness, kinds, result_of
from gateway_harness.stored import fetch, log_of

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
)
from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
)
from bos_errors import InvalidArgument
from bos_testkit.deploy import DeployAgent


@pytest.fixture
async def agent(harness: Harness) -> DeployAgent:
    return await harness.plan_deployment()


@pytest.mark.requirement("M-01", "M-04", "M-10")
async def test_approved_action_is_performed_exactly_once(
    harness: Harness, agent: DeployAgent
) -> None:
    async with harness.gateway() as gateway:
        following = Following(gateway)
        approval = await following.asked()
        assert agent.landed == {}
        assert approval.status == APPROVAL_STATUS_PENDING
        (action,) = approval.actions
        assert (action.tool, action.summary) == ("trigger_deployment", "Deploy shop 1.2")
        assert action.arguments.fields["version"].string_value == "1.2"
        waits_s = approval.expire_time.ToNanoseconds() - approval.create_time.ToNanoseconds()
        assert waits_s == 120 * 10**9
        await until_released(harness.dsn, approval.run_id)
        assert (await gateway.run(approval.run_id)).status == RUN_STATUS_WAITING_FOR_APPROVAL
        answered = await respond(gateway, approval, APPROVE)
        assert answered.status == APPROVAL_STATUS_APPROVED
        events = await following.end()
    assert agent.landed == {"deploy shop 1.2": 1}
    assert result_of(events, "a").status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert [p.action.digest for p in result_of(events, "a").performed_actions] == [action.digest]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    order = [event.WhichOneof("event") for event in await log_of(harness.dsn)]
    shown = ["approval_requested", "approval_resolved", "effect_intended", "step_finished"]
    assert [kind for kind in order if kind in shown] == shown
    assert "approval_resolved" in kinds(events)


async def test_damaged_approval_does_not_affect_others(
    harness: Harness, agent: DeployAgent
) -> None:
    async with harness.gateway(approval_timeouts={"trigger_deployment": 4.0}) as gateway:
        followed = damaged, _ = Following(gateway, "One?"), Following(gateway, "Two?")
        asked = [(await each.asked()).approval_id for each in followed]
        tear = "UPDATE approvals SET payload = '\\xff' WHERE approval_id = $1"
        await fetch(harness.dsn, tear, asked[0])
        assert {each.approval_id for each in await listed(gateway)} == set(asked)
        with pytest.raises(grpc.aio.AioRpcError, match="can only be denied"):
            await respond(gateway, damaged.requests[0], APPROVE)
        for following in followed:
            result = result_of(await following.end(), "a")
            assert result.error.type == "hitl_timeout"
            assert "Deploy shop 1.2" in result.error.message
    assert agent.landed == {}


@pytest.mark.requirement("A-24", "M-17", "M-18", "M-19")
async def test_instructions_lead_to_another_proposal(harness: Harness, agent: DeployAgent) -> None:
    """What cannot be classified adds to the task; the model is that of the question."""
    async with harness.gateway(models={"large": "Thorough"}) as gateway:
        following = Following(gateway, model="large")
        first = await following.asked()
        for decision, instructions in ((DENY, "but"), (0, "")):
            refused = await refusal(respond(gateway, first, decision, instructions))
            assert isinstance(refused, InvalidArgument)
        await respond(gateway, first, APPROVE, "deploy shop 1.3")
        second = await following.asked(2)
        assert second.approval_id != first.approval_id
        assert agent.landed == {}
        assert [action.summary for action in second.actions] == ["Deploy shop 1.3"]
        await respond(gateway, second, APPROVE)
        events = await following.end()
    (asked,) = harness.planner.instructions
    assert (asked.task, asked.instructions) == ("deploy shop 1.2", "deploy shop 1.3")
    assert (asked.proposal, asked.model) == ("Deploy shop 1.2", "large")
    assert {task.model for task in agent.inputs} == {"large"}
    assert agent.landed == {"deploy shop 1.3": 1}
    result = result_of(events, "a")
    for text in (second.task_description, result.task_description):
        assert "### User Enhanced Instructions" in text
    assert not result.task_overridden
