"""Steps through real gRPC that propose actions and perform approved ones."""

import asyncio
from typing import Any

import pytest

from bos.agent.v1 import (
    AgentExecutionStatus,
    AgentInput,
    AgentResult,
    ApprovalContext,
    TaskMetadata,
)
from bos_agentkit import AgentTask, awaiting_approval, succeeded
from bos_chassis.values import from_value_map
from bos_testkit.agents import CountingAgent, agent_server, call_agent

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
AWAITING = AgentExecutionStatus.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL


def step(**approval: Any) -> AgentInput:
    return AgentInput(
        task="mark",
        tools=["leave_mark"],
        metadata=TaskMetadata(step_key="run/0/s"),
        approval_context=ApprovalContext(**approval),
    )


@pytest.mark.requirement("M-01", "M-10")
async def test_propose_approve_perform() -> None:
    """Nothing happens before the approval, and exactly once after it."""
    agent = CountingAgent(protected=True)
    async with agent_server(agent) as address:
        _, proposal = await call_agent(address, step())
        assert (proposal.status, agent.effects) == (AWAITING, [])
        (action,) = proposal.proposed_actions
        assert action.summary == "Leave the mark “mark”"
        _, done = await call_agent(address, step(approved_actions=[action]))
    assert done.status == SUCCEEDED
    assert [effect.label for effect in agent.effects] == ["mark"]
    assert agent.effects[0].idempotency_key == f"run/0/s/{action.action_id}"
    assert from_value_map(done.data) == {"mark": "mark", "count": 1}
    assert [performed.action for performed in done.performed_actions] == [action]
    assert len(agent.inputs) == 1  # performed without another model call


async def test_instructions_lead_to_a_fresh_proposal() -> None:
    agent = CountingAgent(protected=True)
    async with agent_server(agent) as address:
        _, first = await call_agent(address, step())
        _, second = await call_agent(address, step(user_instructions="and politely"))
    assert second.status == AWAITING
    assert second.proposed_actions[0].digest != first.proposed_actions[0].digest
    assert agent.effects == []


async def test_concurrent_protected_calls_are_proposed_together() -> None:
    class Twice(CountingAgent):
        async def behave(self, task: AgentTask) -> AgentResult:
            async with asyncio.TaskGroup() as group:
                group.create_task(task.tools.call("leave_mark", label="a"))
                group.create_task(task.tools.call("leave_mark", label="b"))
            return succeeded(task)

    async with agent_server(Twice(protected=True)) as address:
        _, result = await call_agent(address, step())
    assert result.status == AWAITING
    assert [action.summary for action in result.proposed_actions] == [
        "Leave the mark “a”",
        "Leave the mark “b”",
    ]


async def test_an_agent_may_propose_several_actions() -> None:
    class Proposing(CountingAgent):
        async def behave(self, task: AgentTask) -> AgentResult:
            labels = ("a", "b")
            return awaiting_approval(
                task, [task.tools.propose("leave_mark", {"label": label}) for label in labels]
            )

    agent = Proposing(protected=True)
    async with agent_server(agent) as address:
        _, proposal = await call_agent(address, step())
        actions = proposal.proposed_actions
        _, done = await call_agent(address, step(approved_actions=actions))
    assert [effect.label for effect in agent.effects] == ["a", "b"]
    assert done.answer == "Done: Leave the mark “a”; Leave the mark “b”"
    assert set(from_value_map(done.data)) == {action.action_id for action in actions}
