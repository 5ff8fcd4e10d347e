"""Latency from a decision to its effect: two gateways, one that asked, one that is notified.

The run waits, unowned, so whichever gateway is faster adopts it and has the agent act. The
agent and the person are this process: both ends of the time are read from one clock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import grpc

from bos.agent.v1 import AgentInput, AgentResult, AgentServiceStub, ExecuteRequest, SideEffectClass
from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    Approval,
    ApprovalServiceStub,
    AskStreamRequest,
    OrchestratorServiceStub,
    RespondApprovalRequest,
)
from bos.planner.v1 import Step
from bos_agentkit import AgentTask, agent_card, succeeded, tool
from bos_bench.doubles import open_harness
from bos_bench.measure import Effort, Figures, Part, Sample, compared
from bos_bench.store import Store
from bos_chassis.telemetry import Telemetry
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent

_AGENT, _TOOL = "acting", "act"
_CHANNEL = "bench_round_trip"
_PER_WARM_UP = 2
"""Decisions per round for each operation of a warm-up: 40 in full, 2 to show that it runs."""
_WITHIN_S = 60
_NOBODYS = "SELECT replica_id IS NULL AND status = $2 FROM runs WHERE run_id = $1"


class ActingAgent(RecordingAgent):
    """Acts when approved, and records when, by task. Other tasks are echoed."""

    def __init__(self) -> None:
        @tool(
            description="Acts.",
            requires_approval=True,
            side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
            summary="Act as {name}",
        )
        async def act(name: str) -> dict[str, Any]:
            self.acted[name].set_result(time.perf_counter())
            return {"name": name}

        self.acted: dict[str, asyncio.Future[float]] = {}
        """When it acted, by name; who waits puts the future there. Acting twice raises."""
        self.tools = (act,)
        super().__init__(_AGENT, card=agent_card(_AGENT, "Acts.", tools=self.tools, max_retries=0))

    async def behave(self, task: AgentTask) -> AgentResult:
        """Propose to act, act, or echo."""
        name = task.effective_task
        if name in self.acted:
            return succeeded(task, data=await task.tools.call(_TOOL, name=name))
        return succeeded(task, answer=name)


def _plan(question: str) -> list[Step]:
    """One step whose task is the question."""
    return [Step(step_id="one", agent=_AGENT, task=question, tool_name=_TOOL, tools=[_TOOL])]


@dataclass(frozen=True, slots=True)
class Harness:
    """Two gateways and the agent, and a look into their database."""

    agent: ActingAgent
    bare: Any
    """A stub of the agent, without a gateway."""
    asked: grpc.aio.Channel
    decided: grpc.aio.Channel
    database: asyncpg.Connection[Any]
    looking: asyncio.Lock


async def measure(store: Store, telemetry: Telemetry, effort: Effort) -> Part:
    """Wake-up times with one decision after the other and with several at once."""
    dsn = await store.fresh_log("bench_approval")
    async with AsyncExitStack() as stack:
        harness = await stack.enter_async_context(_open_harness(dsn, telemetry))
        notify = await stack.enter_async_context(_round_trips(dsn))
        names = (f"run {n}" for n in count())
        decisions = effort.warm_up * _PER_WARM_UP
        await _wake_ups(harness, names, 1, effort.warm_up)
        table = await compared(
            effort,
            effort.at_once[:2],
            lambda at_once: _round(harness, notify, names, at_once, max(decisions, at_once)),
        )
    return {"decision to effect, over another gateway": table}


async def _round(
    harness: Harness, notify: Callable[[], Any], names: Any, at_once: int, decisions: int
) -> Figures:
    bare = [await _timed(notify) for _ in range(decisions)]
    calls = [await _timed(lambda: _echo(harness)) for _ in range(decisions)]
    answered, woken = await _wake_ups(harness, names, at_once, decisions)
    wake, p50 = Sample(1.0, 0.0, woken), 0.5
    notified, called = Sample(1.0, 0.0, bare), Sample(1.0, 0.0, calls)
    return {
        "p50_ms": wake.percentile_ms(p50),
        "p95_ms": wake.percentile_ms(0.95),
        "answered_p50_ms": Sample(1.0, 0.0, answered).percentile_ms(p50),
        "notify_p50_ms": notified.percentile_ms(p50),
        "execute_p50_ms": called.percentile_ms(p50),
        "over_notify_ratio": wake.percentile_ms(p50) / notified.percentile_ms(p50),
        "over_execute_ratio": wake.percentile_ms(p50) / called.percentile_ms(p50),
    }


async def _wake_ups(
    harness: Harness, names: Any, at_once: int, decisions: int
) -> tuple[list[float], list[float]]:
    """Times to the answer to the decision, and to the effect, in seconds."""
    answered: list[float] = []
    woken: list[float] = []

    async def work() -> None:
        while len(woken) < decisions:
            decided_s, acted_s = await _wake_up(harness, next(names))
            answered.append(decided_s)
            woken.append(acted_s)

    async with asyncio.timeout(_WITHIN_S), asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return answered, woken


async def _wake_up(harness: Harness, name: str) -> tuple[float, float]:
    """One run to its end."""
    acted = harness.agent.acted[name] = asyncio.get_running_loop().create_future()
    request = AskStreamRequest(request=AgentRequest(question=name))
    call = OrchestratorServiceStub(harness.asked).AskStream(request, timeout=_WITHIN_S)
    try:
        async for message in call:
            if message.event.HasField("approval_requested"):
                times = await _decide(harness, message.event.approval_requested.approval, acted)
        del harness.agent.acted[name]
        return times
    finally:
        call.cancel()


async def _decide(
    harness: Harness, approval: Approval, acted: asyncio.Future[float]
) -> tuple[float, float]:
    async with harness.looking:
        query = (_NOBODYS, UUID(approval.run_id), RUN_STATUS_WAITING_FOR_APPROVAL)
        # Another process releases it, without a notification to this one.
        while not await harness.database.fetchval(*query):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    request = RespondApprovalRequest(
        approval_id=approval.approval_id, decision=APPROVAL_DECISION_APPROVE
    )
    began = time.perf_counter()
    await ApprovalServiceStub(harness.decided).RespondApproval(request, timeout=_WITHIN_S)
    decided = time.perf_counter()
    return decided - began, await acted - began


async def _echo(harness: Harness) -> None:
    call = harness.bare.Execute(ExecuteRequest(input=AgentInput(task="echo")), timeout=_WITHIN_S)
    async for _ in call:
        pass


async def _timed(operation: Callable[[], Any]) -> float:
    began = time.perf_counter()
    await operation()
    return time.perf_counter() - began


@asynccontextmanager
async def _round_trips(dsn: str) -> AsyncIterator[Callable[[], Any]]:
    """A message from one session to another, and nothing else."""
    async with connect(dsn) as speaker, connect(dsn) as listener:
        heard = asyncio.Event()
        await listener.add_listener(_CHANNEL, lambda *_: heard.set())

        async def round_trip() -> None:
            heard.clear()
            await speaker.execute("SELECT pg_notify($1, 'hello')", _CHANNEL)
            await heard.wait()

        yield round_trip


@asynccontextmanager
async def _open_harness(dsn: str, telemetry: Telemetry) -> AsyncIterator[Harness]:
    agent = ActingAgent()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        doubles = await enter(open_harness(telemetry, [agent], _plan))
        channels = []
        for name in ("asked", "decided"):
            gateway = await enter(doubles.gateway_process(dsn, name))
            channels.append(await enter(grpc.aio.insecure_channel(gateway.said["address"])))
        at = doubles.targets[_AGENT]
        bare = AgentServiceStub(await enter(grpc.aio.insecure_channel(at)))
        database = await enter(connect(dsn, schema=SCHEMA))
        yield Harness(agent, bare, *channels, database, asyncio.Lock())
