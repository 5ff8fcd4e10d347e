"""Third-party agents without agentkit: they return any result that the test makes, unchecked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentInput,
    AgentResult,
    AgentServiceServicer,
    DescribeResponse,
    ExecuteRequest,
    ExecuteResponse,
)
from bos.common.v1 import Value, ValueList, ValueMap
from bos_agentkit import agent_card
from gateway_harness.harness import Harness


class RawAgent(AgentServiceServicer):
    """Sends the messages that ``make`` makes of its context; what it raises or aborts goes out."""

    def __init__(
        self, name: str, make: Callable[[Any], Any], *, tools: tuple[Any, ...] = (), **card: Any
    ) -> None:
        self.card = agent_card(name, f"Agent {name}.", tools=tools, **card)
        self.make = make
        self.inputs: list[AgentInput] = []

    async def Describe(self, request: Any, context: Any) -> DescribeResponse:
        return DescribeResponse(card=self.card)

    async def Execute(
        self, request: ExecuteRequest, context: Any
    ) -> AsyncIterator[ExecuteResponse]:
        self.inputs.append(request.input)
        made = self.make(context)
        if isinstance(made, Awaitable):
            made = await made
        if isinstance(made, AgentResult):
            yield ExecuteResponse(result=made)
            return
        async for message in made:
            yield message


async def add_raw_agent(harness: Harness, agent: RawAgent) -> RawAgent:
    await harness.add_agent(agent)
    return agent


def success(**fields: Any) -> AgentResult:
    """A result that is fine but for what is given."""
    return AgentResult(**{"status": AGENT_EXECUTION_STATUS_SUCCEEDED, "answer": "Fine.", **fields})


def nested(depth: int) -> Value:
    """A text in so many maps: the most messages that a level can take."""
    value = Value(string_value="x")
    for _ in range(depth):
        value = Value(map_value=ValueMap(fields={"k": value}))
    return value


def deep(depth: int) -> Struct:
    """A context of so many maps."""
    value = struct_pb2.Value(string_value="x")
    for _ in range(depth):
        value = struct_pb2.Value(struct_value=Struct(fields={"k": value}))
    return Struct(fields={"deep": value})


def wide(count: int) -> Value:
    """A list of so many values without anything in them."""
    return Value(list_value=ValueList(values=[Value()] * (count - 1)))
