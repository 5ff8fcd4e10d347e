"""Agents whose card, tools and availability change while they are served."""

from typing import Any

import grpc
import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentInput, AgentServiceStub, DescribeRequest
from bos_agentkit import Agent, AgentTask, agent_card, succeeded, tool
from bos_errors import Unavailable
from bos_testkit.agents import agent_server, call_agent


@tool(description="One.")
async def one() -> int:
    return 1


@tool(description="Two.")
async def two() -> int:
    return 2


class ChangingAgent(Agent):
    """Calls the tool that the step names; its tools can be exchanged, and it can be away."""

    def __init__(self) -> None:
        self.away = ""
        self.offer(one)

    def offer(self, *tools: Any, timeout_s: float = 30) -> None:
        self.tools = tools
        self.card = agent_card("changing", "Changes.", tools=tools, default_timeout_s=timeout_s)

    def require_available(self) -> None:
        if self.away:
            raise Unavailable(self.away)

    async def execute(self, task: AgentTask) -> Any:
        return succeeded(task, data={"is": await task.tools.call(task.input.tool_name)})


async def described(address: str) -> Any:
    async with grpc.aio.insecure_channel(address) as channel:
        return (await AgentServiceStub(channel).Describe(DescribeRequest(), timeout=30)).card


async def test_new_tools_are_described_and_can_be_called() -> None:
    agent = ChangingAgent()
    async with agent_server(agent) as address:
        assert [each.name for each in (await described(address)).tools] == ["one"]
        agent.offer(two, timeout_s=77)
        card = await described(address)
        _, gone = await call_agent(address, AgentInput(task="Do", tool_name="one"))
        _, found = await call_agent(address, AgentInput(task="Do", tool_name="two"))
    assert [each.name for each in card.tools] == ["two"]
    assert card.default_timeout.seconds == 77
    assert gone.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
    assert gone.error.details["reason"].string_value == "TOOL_NOT_ALLOWED"
    assert found.data.fields["is"].int64_value == 2


async def test_agent_that_cannot_work_says_why_instead_of_its_card() -> None:
    agent = ChangingAgent()
    async with agent_server(agent) as address:
        agent.away = "Its server is away."
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await described(address)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert refused.value.details() == "Its server is away."
        agent.away = ""
        assert (await described(address)).name == "changing"
