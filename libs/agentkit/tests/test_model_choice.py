"""The model that a question chose, from a step's input to its model calls."""

import asyncio

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentInput
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_testkit.agents import OneCallAgent, agent_server, call_agent
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import fixture

pytestmark = pytest.mark.requirement("A-24")


@pytest.mark.requirement("C-34")
async def test_concurrent_steps_call_the_models_they_name(
    scripted_model: ScriptedModelFactory,
) -> None:
    scripted = await scripted_model(fixture("greeting", ["greet"], text="Good day."))
    settings = model_settings(scripted)
    async with (
        Models(settings, Telemetry.for_tests("models")) as models,
        agent_server(OneCallAgent(models.for_agent("one_call"))) as address,
    ):
        chosen = ("large", "", "small", "")
        steps = [AgentInput(task="greet", model=name) for name in chosen]
        results = await asyncio.gather(*(call_agent(address, step) for step in steps))
    succeeded = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert [result.status for _, result in results] == [succeeded] * 4
    assert [list(result.usage.models) for _, result in results] == [
        ["large"],
        ["scripted"],
        ["small"],
        ["scripted"],
    ]
    asked = sorted(request.model for request in scripted.requests)
    assert asked == ["large", "scripted", "scripted", "small"]
