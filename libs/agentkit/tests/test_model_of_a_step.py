"""Token budget, key profile and model of a step: from its input to its model calls."""

import asyncio
from typing import Any

import pytest

from bos.agent.v1 import AgentExecutionStatus, AgentInput, AgentResult
from bos_agentkit import AgentTask, succeeded
from bos_llm import Model, user
from bos_testkit.agents import OneCallAgent, RecordingAgent, agent_server, call_agent
from bos_testkit.scripted_model.server import ScriptedModel

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED


class Forgetful(RecordingAgent):
    """Calls its model and does not report the usage."""

    def __init__(self, model: Model) -> None:
        super().__init__("forgetful")
        self._model = model

    async def behave(self, task: AgentTask) -> AgentResult:
        await self._model.text([user("greet")])
        return succeeded(task, answer="done")


async def run(agent: Any, **fields: Any) -> AgentResult:
    async with agent_server(agent) as address:
        _, result = await call_agent(address, AgentInput(task="greet", **fields))
    return result


async def test_call_beyond_the_budget_is_not_sent_and_fails_the_step(
    model: Model, scripted: ScriptedModel
) -> None:
    result = await run(OneCallAgent(model), token_budget=50)
    assert scripted.calls == 0
    assert result.status == FAILED
    assert result.error.type == "BudgetExhausted"
    assert not result.error.retryable
    assert result.usage.unreported_tokens == 0


@pytest.mark.parametrize("budget", [{"token_budget": 1000}, {}], ids=["enough", "no bound"])
async def test_call_within_the_budget_is_sent(
    model: Model, scripted: ScriptedModel, budget: dict[str, int]
) -> None:
    result = await run(OneCallAgent(model), **budget)
    assert result.status == SUCCEEDED
    limit = scripted.requests[-1].body.get("max_tokens")
    assert (limit is not None and limit < 1000) is bool(budget)
    assert result.usage.output_tokens > 0
    assert result.usage.unreported_tokens == 0


async def test_tokens_that_the_agent_does_not_report_are_counted(
    model: Model, scripted: ScriptedModel
) -> None:
    result = await run(Forgetful(model), token_budget=1000)
    assert scripted.calls == 1
    assert result.usage.output_tokens == 0
    assert result.usage.unreported_tokens > 0


async def test_budget_of_one_step_does_not_limit_the_next(
    model: Model, scripted: ScriptedModel
) -> None:
    agent = OneCallAgent(model)
    async with agent_server(agent) as address:
        _, first = await call_agent(address, AgentInput(task="greet", token_budget=0))
        _, second = await call_agent(address, AgentInput(task="greet"))
    assert (first.status, second.status) == (FAILED, SUCCEEDED)
    assert scripted.calls == 1


@pytest.mark.parametrize(("profile", "key_end"), [("research", "rsch"), ("", "cdef")])
@pytest.mark.requirement("N-07")
async def test_step_uses_the_profile_it_names(
    model: Model, scripted: ScriptedModel, profile: str, key_end: str
) -> None:
    result = await run(OneCallAgent(model), api_keys_config_ref=profile)
    assert result.status == SUCCEEDED
    assert [request.key_end for request in scripted.requests] == [key_end]


@pytest.mark.requirement("N-07")
async def test_unknown_profile_names_the_setting(model: Model, scripted: ScriptedModel) -> None:
    result = await run(OneCallAgent(model), api_keys_config_ref="finance")
    assert (result.status, result.error.type) == (FAILED, "ConfigurationError")
    assert "BOS_MODEL_KEYS" in result.error.message
    assert not result.error.retryable
    assert scripted.calls == 0


@pytest.mark.requirement("A-24", "C-34")
async def test_concurrent_steps_call_the_models_they_name(model: Model) -> None:
    async with agent_server(OneCallAgent(model)) as address:
        steps = [AgentInput(task="greet", model=name) for name in ("large", "", "small", "")]
        results = await asyncio.gather(*(call_agent(address, step) for step in steps))
    used = [list(result.usage.models) for _, result in results]
    assert used == [["large"], ["scripted"], ["small"], ["scripted"]]
