"""Another attempt at a step: once its dispatch is in the log, by an owner that still is one."""

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from gateway_harness.run_logs import LIMIT, accepted, planned, recorded, running

from bos.agent.v1 import AgentCard
from bos.runlog.v1 import LogEvent
from bos_agentkit import AgentFailure
from bos_chassis.auth.access import AccessRules, AccessSettings
from bos_chassis.channels import Channels
from bos_chassis.telemetry import Telemetry
from bos_gateway.core.fold import fold
from bos_gateway.effects.context import Deps, EffectContext
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.effects.registry import Registry
from bos_gateway.effects.run_tokens import Tokens
from bos_gateway.effects.step import run_step
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership.clock import DatabaseClock
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.settings import GatewaySettings
from bos_testkit.agents import FailingAgent, agent_server
from bos_testkit.plans import step
from bos_testkit.waiting import eventually


class Log:
    """Keeps events; those that are waited for are committed when the test says so."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []
        self.waited_for: list[LogEvent] = []
        self.commit: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def emit(self, event: LogEvent) -> None:
        self.events.append(event)

    async def committed(self, event: LogEvent) -> None:
        self.waited_for.append(event)
        await self.commit

    def say(self, attempt: int, text: str) -> None:
        raise AssertionError("a step says nothing of the answer")


async def attempted(
    stack: AsyncExitStack, log: Log, retries: int = 1
) -> tuple[FailingAgent, asyncio.Task[None]]:
    """An agent that fails once, at work on a step."""
    failure = AgentFailure("HttpError", "Try again.", retryable=True)
    card = AgentCard(name="failing", description="Fails once.", max_retries=retries)
    agent = FailingAgent("failing", error=failure, times=1, card=card)
    target = await stack.enter_async_context(agent_server(agent))
    telemetry = Telemetry.for_tests("attempts")
    channels = await stack.enter_async_context(Channels(telemetry))
    registry = Registry({"failing": target}, channels, Tokens(None), telemetry)
    await registry.refresh()
    metrics = GatewayMetrics(telemetry.registry)
    services = SimpleNamespace(
        registry=registry,
        tokens=Tokens(None),
        settings=GatewaySettings.load(
            store_url="x", planner_target="x", composer_target="x", agent_targets={}, backoff_s=0.0
        ),
        metrics=metrics,
        telemetry=telemetry,
        clock=DatabaseClock(telemetry, metrics),
        files=RunFiles(None, cast("Any", None), telemetry),
        file_budget=MemoryBudget(0),
        result_budget=MemoryBudget(0),
        access=AccessRules(AccessSettings()),
    )
    start = accepted(card)
    start.run_accepted.deadline.FromDatetime(services.clock.now() + LIMIT)
    state = fold("0198c0de-0000-7000-8000-000000000000", [start, planned(step("a", "failing"))])
    recorded(state)
    run = EffectContext(state, {}, cast("Deps", services), log.emit, log.committed, log.say)
    return agent, asyncio.create_task(run_step(run, running(state)))


async def test_agent_is_called_again_once_the_dispatch_is_committed() -> None:
    log = Log()
    async with AsyncExitStack() as stack:
        agent, task = await attempted(stack, log)
        await eventually(lambda: bool(log.waited_for))
        assert len(agent.inputs) == 1
        log.commit.set_result(None)
        await task
    assert [e.step_dispatched.attempt for e in log.waited_for] == [2]
    assert [given.metadata.attempt for given in agent.inputs] == [1, 2]
    assert log.events[-1].step_finished.attempts == 2


async def test_agent_is_not_called_again_by_who_has_lost_the_run() -> None:
    log = Log()
    async with AsyncExitStack() as stack:
        agent, task = await attempted(stack, log)
        await eventually(lambda: bool(log.waited_for))
        log.commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(agent.inputs) == 1
    assert not any(event.HasField("step_finished") for event in log.events)


async def test_agent_that_is_called_once_waits_for_no_commit() -> None:
    log = Log()
    async with AsyncExitStack() as stack:
        agent, task = await attempted(stack, log, retries=0)
        await task
    assert (len(agent.inputs), log.waited_for) == (1, [])
