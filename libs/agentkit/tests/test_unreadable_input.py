"""Invalid input fails its step with an error that names the field."""

from typing import Any

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentInput
from bos.common.v1 import Value, ValueList, ValueMap
from bos_chassis.values import MAX_DEPTH
from bos_testkit.agents import EchoAgent, agent_server, call_agent

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED


def nested(depth: int) -> Value:
    value = Value(string_value="x")
    for _ in range(depth):
        value = Value(list_value=ValueList(values=[value]))
    return value


def inputs(value: Value) -> dict[str, dict[str, Any]]:
    """The same value as an argument, and as a field of an earlier step's output."""
    return {
        "input.sub_task_input.a": {"sub_task_input": {"a": value}},
        "input.dependency_outputs.b": {"dependency_outputs": {"b": ValueMap(fields={"c": value})}},
    }


@pytest.mark.parametrize(
    "value",
    [
        nested(MAX_DEPTH + 2),
        Value(decimal_value="seven"),
    ],
    ids=["too deep", "a number in words"],
)
async def test_error_of_an_invalid_input_names_the_field(value: Value) -> None:
    agent = EchoAgent("echo")
    async with agent_server(agent) as address:
        for field, given in inputs(value).items():
            _, result = await call_agent(address, AgentInput(task="go", **given))
            assert result.status == FAILED
            assert result.error.type == "InvalidArgument"
            assert field in result.error.details
            assert "nested at most 24 deep" in result.error.details[field].string_value
            assert not result.error.retryable


async def test_values_at_the_nesting_limit_are_read() -> None:
    agent = EchoAgent("echo", data={})
    async with agent_server(agent) as address:
        for given in inputs(nested(MAX_DEPTH - 2)).values():
            _, result = await call_agent(address, AgentInput(task="go", **given))
            assert result.status == SUCCEEDED, result.error
