"""Steps whose model is slow or fails: retryability and usage."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from bos.agent.v1 import AGENT_EXECUTION_STATUS_FAILED, AgentInput, AgentResult, RetryConfig
from bos_agentkit import AgentTask, succeeded
from bos_agentkit.failures import error_of
from bos_chassis.values import from_value
from bos_errors import BosError, DeadlineExceeded, Unavailable
from bos_llm import Model, user
from bos_llm.errors import ModelOutputInvalid, ModelRateLimited, ModelUnavailable
from bos_testkit.agents import OneCallAgent, RecordingAgent, SlowAgent, agent_server, call_agent
from bos_testkit.scripted_model.server import ScriptedModel
from bos_testkit.waiting import eventually


def block_until_late(task: AgentTask) -> None:
    """Block the event loop until the step's time is over."""
    while remaining_s := task.remaining_s():
        time.sleep(remaining_s)


class CallsThenWaits(RecordingAgent):
    """Gets its model's reply, then waits for something else."""

    def __init__(self, model: Model) -> None:
        super().__init__("waits")
        self._model = model

    async def behave(self, task: AgentTask) -> AgentResult:
        task.usage.add((await self._model.text([user("greet")])).usage)
        await asyncio.Event().wait()
        return succeeded(task, answer="never")


class GivesUpItsModel(RecordingAgent):
    """Cancels a model call in flight, then fails with ``error`` or else waits indefinitely."""

    def __init__(
        self, model: Model, scripted: ScriptedModel, error: DeadlineExceeded | None, *, late: bool
    ) -> None:
        super().__init__("gives-up")
        self._model, self._scripted = model, scripted
        self._error, self._late = error, late

    async def behave(self, task: AgentTask) -> AgentResult:
        beside = asyncio.create_task(self._model.text([user("greet")]))
        await eventually(lambda: self._scripted.calls == 1)
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)
        if self._late:
            block_until_late(task)
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        return succeeded(task, answer="never")


async def run(agent: Any, *, within_s: float) -> AgentResult:
    limit = RetryConfig()
    limit.timeout.FromTimedelta(timedelta(seconds=within_s))
    async with agent_server(agent) as address:
        _, result = await call_agent(address, AgentInput(task="greet", retry_config=limit))
    assert result.status == AGENT_EXECUTION_STATUS_FAILED
    return result


def reason(result: AgentResult) -> Any:
    return from_value(result.error.details["reason"])


async def test_step_timeout_waiting_for_its_model_is_not_retryable(
    model: Model, scripted: ScriptedModel
) -> None:
    scripted.knobs.latency_s = 30
    result = await run(OneCallAgent(model, "my-agent"), within_s=2)
    assert scripted.calls == 1
    assert (result.error.type, reason(result)) == ("DeadlineExceeded", "MODEL_TIMEOUT")
    assert "BOS_MY_AGENT_STEP_TIMEOUT_S" in result.error.message
    assert not result.error.retryable
    assert result.usage.abandoned_calls == 1
    assert result.usage.unreported_tokens > 0
    assert result.usage.model_calls == 0


async def test_step_timeout_after_its_models_reply_is_not_retryable(
    model: Model, scripted: ScriptedModel
) -> None:
    result = await run(CallsThenWaits(model), within_s=2)
    assert scripted.calls == 1
    assert reason(result) == "STEP_TIMEOUT"
    assert not result.error.retryable
    assert (result.usage.model_calls, result.usage.abandoned_calls) == (1, 0)
    assert result.usage.unreported_tokens == 0


@pytest.mark.parametrize(
    ("given", "late", "expected", "retryable"),
    [
        (DeadlineExceeded("No answer.", reason="MCP_TIMEOUT"), False, "MCP_TIMEOUT", True),
        (DeadlineExceeded("No answer."), False, "MODEL_TIMEOUT", False),
        (DeadlineExceeded("No answer.", reason="MCP_TIMEOUT"), True, "STEP_TIMEOUT", False),
        (DeadlineExceeded("No answer."), True, "MODEL_TIMEOUT", False),
        (None, False, "STEP_TIMEOUT", False),
    ],
)
async def test_reason_of_a_failure_after_a_cancelled_model_call(
    model: Model, scripted: ScriptedModel, given: Any, late: bool, expected: str, retryable: bool
) -> None:
    scripted.knobs.latency_s = 30
    agent = GivesUpItsModel(model, scripted, given, late=late)
    result = await run(agent, within_s=2 if late or given is None else 30)
    assert reason(result) == expected
    assert result.error.retryable is retryable
    assert result.usage.abandoned_calls == 1
    if given is None:
        assert "its model" not in result.error.message


async def test_step_that_timed_out_without_a_model_call_is_retryable() -> None:
    result = await run(SlowAgent(), within_s=0.2)
    assert reason(result) == "STEP_TIMEOUT"
    assert result.error.retryable
    assert (result.usage.abandoned_calls, result.usage.unreported_tokens) == (0, 0)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (ModelUnavailable("down"), False),
        (ModelRateLimited("too many", retry_after_s=1), False),
        (ModelOutputInvalid("no JSON"), False),
        (DeadlineExceeded("slow", reason="MODEL_TIMEOUT"), False),
        (DeadlineExceeded("a slow query"), True),
        (Unavailable("the database is away"), True),
    ],
    ids=lambda value: (
        f"{type(value).__name__} {value.reason}" if isinstance(value, BosError) else ""
    ),
)
def test_failures_of_models_are_not_retryable(error: BosError, retryable: bool) -> None:
    assert error_of(error).retryable is retryable
