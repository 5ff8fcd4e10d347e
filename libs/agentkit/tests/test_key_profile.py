"""Key profile of a step, from its input to its model calls."""

from collections.abc import AsyncIterator

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentInput, AgentResult
from bos_chassis.telemetry import Telemetry
from bos_llm import Model, Models
from bos_testkit.agents import OneCallAgent, agent_server, call_agent
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

pytestmark = pytest.mark.requirement("N-07")


@pytest.fixture
async def scripted(scripted_model: ScriptedModelFactory) -> ScriptedModel:
    return await scripted_model(fixture("greeting", ["greet"], text="Good day."))


@pytest.fixture
async def model(scripted: ScriptedModel) -> AsyncIterator[Model]:
    settings = model_settings(scripted, key_profiles={"research": "sk-research-000-rsch"})
    async with Models(settings, Telemetry.for_tests("models")) as models:
        yield models.for_agent("one_call")


async def run(model: Model, profile: str) -> AgentResult:
    async with agent_server(OneCallAgent(model)) as address:
        _, result = await call_agent(address, AgentInput(task="greet", api_keys_config_ref=profile))
    return result


@pytest.mark.parametrize(("profile", "key_end"), [("research", "rsch"), ("", "cdef")])
@pytest.mark.requirement("N-07")
async def test_a_step_uses_the_profile_it_names(
    model: Model, scripted: ScriptedModel, profile: str, key_end: str
) -> None:
    result = await run(model, profile)
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert [request.key_end for request in scripted.requests] == [key_end]


@pytest.mark.requirement("N-07")
async def test_a_step_with_an_unknown_profile_names_the_setting(
    model: Model, scripted: ScriptedModel
) -> None:
    result = await run(model, "finance")
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
    assert result.error.type == "ConfigurationError"
    assert "BOS_MODEL_KEYS" in result.error.message
    assert not result.error.retryable
    assert scripted.calls == 0
