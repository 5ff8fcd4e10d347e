"""Failures of models are not repeated by steps and revisions: the caller of the model retries."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from gateway_harness.harness import Harness
from gateway_harness.raw_agents import RawAgent

from bos.agent.v1 import (
    ExecuteResponse,
)
from bos.gateway.v1 import RUN_STATUS_FAILED
from bos_agentkit import AgentFailure, agent_card
from bos_errors import Unavailable
from bos_llm.errors import ModelUnavailable
from bos_testkit.agents import EchoAgent, FailingAgent


@pytest.mark.requirement("C-36")
async def test_failures_of_models_are_neither_repeated_nor_replanned(harness: Harness) -> None:
    agent = await harness.plan(FailingAgent("failing"))
    harness.planner.revisions = [[]]
    async with harness.gateway() as gateway:
        for error, attempts, plans in (
            (ModelUnavailable("down"), 1, 1),
            # What a model has nothing to do with is repeated, and planned around, as ever.
            (Unavailable("the database is away"), 3, 2),
            # An agent that is wrong about its model's failures is not believed.
            (AgentFailure("QueryError", "x", {"reason": "MODEL_TIMEOUT"}, retryable=True), 1, 1),
        ):
            agent._error = error
            agent.inputs.clear()
            harness.planner.requests.clear()
            await gateway.ask()
            assert (len(agent.inputs), len(harness.planner.requests)) == (attempts, plans), error


@pytest.mark.parametrize(("busy", "calls"), [(False, 1), (True, 3)])
async def test_call_that_exceeds_its_step_timeout_is_not_repeated(
    harness: Harness, busy: bool, calls: int
) -> None:
    async def silent(_: Any) -> AsyncIterator[ExecuteResponse]:
        if busy:
            raise Unavailable("not now")
        await asyncio.Event().wait()
        yield ExecuteResponse()

    agent = RawAgent("silent", silent, default_timeout_s=0.2, max_retries=2)
    await harness.plan(agent)
    async with harness.gateway(max_revisions=0) as gateway:
        response = await gateway.ask()
    assert response.status == RUN_STATUS_FAILED
    assert len(agent.inputs) == calls


@pytest.mark.parametrize(("set_s", "given_s"), [(None, 20), (10_000, 480)])
async def test_steps_get_the_time_that_is_set_as_far_as_the_run_has_it(
    harness: Harness, set_s: float | None, given_s: float
) -> None:
    """Of the run's time a fifth is kept for the answer, as composing may take as long."""
    agent = EchoAgent("echo", card=agent_card("echo", "Echoes.", default_timeout_s=20))
    await harness.plan(agent, step_timeout_s=set_s)
    async with harness.gateway(run_timeout_s=600, compose_timeout_s=300) as gateway:
        await gateway.ask()
    (given,) = [each.retry_config.timeout.seconds for each in agent.inputs]
    assert given_s - 60 < given <= given_s
