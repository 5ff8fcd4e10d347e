"""Needed and optional model calls of a step."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from bos.agent.v1 import AgentInput
from bos_agentkit import AgentFailure, AgentTask, needed_reply, optional_reply
from bos_chassis.telemetry import Telemetry
from bos_errors import AgentErrorType
from bos_llm import Model, ModelNotConfigured, Models, NoReply, user
from bos_llm.errors import ModelOutputInvalid
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

AMPLE_S = 60.0
ASKED = [user("greet")]


class Greeting(BaseModel):
    text: str


def no_model(error: ModelNotConfigured) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR, f"A greeting needs a model. {error.message}"
    )


@pytest.fixture
def task() -> AgentTask:
    return AgentTask(AgentInput(task="Greet."), timeout_s=600)


async def needed(task: AgentTask, model: Model | None) -> Greeting:
    return await needed_reply(task, model, ASKED, Greeting, no_model=no_model)


async def optional(task: AgentTask, model: Model | None) -> Greeting:
    return await optional_reply(task, model, lambda: ASKED, Greeting, within_s=AMPLE_S)


def calls(task: AgentTask) -> int:
    return task.usage.message(timedelta()).model_calls


@pytest.mark.parametrize("call", [needed, optional])
async def test_reply_is_returned_and_counted(task: AgentTask, model: Model, call: Any) -> None:
    assert await call(task, model) == Greeting(text="Good day.")
    assert calls(task) == 1


async def test_needed_reply_without_a_model_fails_with_the_agents_text(
    task: AgentTask, scripted: ScriptedModel
) -> None:
    with pytest.raises(AgentFailure) as caught:
        await needed(task, None)
    assert caught.value.type == AgentErrorType.CONFIGURATION_ERROR
    assert "OPENAI_API_KEY" in caught.value.message
    settings = model_settings(scripted, base_url=None)
    async with Models(settings, Telemetry.for_tests("models")) as models:
        with pytest.raises(AgentFailure, match=r"needs a model\. No model is configured"):
            await needed(task, models.for_agent("greeter"))
    assert scripted.calls == 0


async def test_needed_reply_with_a_refused_key_names_the_setting(
    task: AgentTask, model: Model, scripted: ScriptedModel
) -> None:
    scripted.knobs.fail_next(9, status=401)
    with pytest.raises(AgentFailure) as caught:
        await needed(task, model)
    assert caught.value.type == AgentErrorType.CONFIGURATION_ERROR


async def test_unusable_reply_is_counted_once(
    task: AgentTask, model: Model, scripted: ScriptedModel
) -> None:
    """An optional one by the call; a needed one with the error that ends the step."""
    scripted.knobs.prose_next(4)
    with pytest.raises(NoReply) as given_up:
        await optional(task, model)
    assert given_up.value.reason == "MODEL_OUTPUT_INVALID"
    assert calls(task) == 2
    with pytest.raises(ModelOutputInvalid) as failed:
        await needed(task, model)
    assert failed.value.usage.calls == 2
    assert calls(task) == 2


async def test_optional_reply_without_a_model_is_none(
    task: AgentTask, scripted: ScriptedModel
) -> None:
    with pytest.raises(NoReply) as caught:
        await optional(task, None)
    assert caught.value.not_configured
    assert scripted.calls == calls(task) == 0
