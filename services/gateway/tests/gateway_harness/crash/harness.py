"""What crash tests share: agents that count, a planner that knows them, clients that come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc

from bos.agent.v1 import (
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentResult,
    SideEffectClass,
)
from bos.gateway.v1 import CancelRunRequest, WatchRunRequest
from bos.planner.v1 import MakePlanRequest, MakePlanResponse, Plan, Step
from bos_agentkit import AgentTask, succeeded
from bos_errors import InvalidArgument
from bos_testkit.agents import CountingAgent, RecordingAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step
from gateway_harness.crash.hostile import HostileAgent, hostile_steps
from gateway_harness.harness import Client, Harness, PlannerDouble, gateway_process, open_harness
from gateway_harness.raw_agents import add_raw_agent
from gateway_harness.run_contract import Execution, Seen
from gateway_harness.streamed import cursor

PROGRAM = Path(__file__).parent / "crashing_gateway.py"
_MOST_RECONNECTS = 2000
_BETWEEN_S = 0.05
_STREAM_S = 30.0
# How a gateway looks that is gone, going, full, or frozen for longer than a call may take.
_AWAY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
WAITS = "wait"
"""In a question: its run waits for the gate."""
ASKS = "may it"
"""In a question: two steps wait for approvals."""
FAILS = "no other plan"
"""In a question: it cannot be planned."""
MENDS = "mend"
"""In a question: a step of its first plan fails, and another plan mends that."""


class WitnessAgent(RecordingAgent):
    """Notes every step that arrives; has no effect, so all it does may be repeated."""

    repeatable = True

    def __init__(self, name: str, *, takes_s: float = 0.0) -> None:
        super().__init__(name)
        self.executions: list[Execution] = []
        self.landed: Counter[str] = Counter()
        self._takes_s = takes_s
        self.gate = asyncio.Event()
        """Before it opens no work ends."""
        self.gate.set()

    async def behave(self, task: AgentTask) -> AgentResult:
        metadata = task.input.metadata
        self.executions.append(Execution(metadata.step_key, metadata.attempt, time.time()))
        task.trace.decision("under way", attempt=metadata.attempt)
        await asyncio.sleep(self._takes_s)
        await self.gate.wait()
        self.landed[metadata.step_key] += 1
        return succeeded(task, answer=f"{self.card.name} done", data={"x": 1})


class EffectAgent(CountingAgent):
    """Has one effect per step, noted where it lands, and then takes its time to say so."""

    def __init__(self, name: str, side_effect: SideEffectClass, *, takes_s: float = 0.0) -> None:
        super().__init__(name, side_effect=side_effect)
        self.repeatable = side_effect == SIDE_EFFECT_CLASS_IDEMPOTENT
        self.executions: list[Execution] = []
        self._takes_s = takes_s

    @property
    def landed(self) -> Counter[str]:
        """Effects by step key; one that is known by its key lands once however often it comes."""
        keys = [effect.idempotency_key for effect in self.effects]
        known = set(keys) if self.repeatable else keys
        return Counter(key.rsplit("/", 1)[0] for key in known)

    async def behave(self, task: AgentTask) -> AgentResult:
        metadata = task.input.metadata
        self.executions.append(Execution(metadata.step_key, metadata.attempt, time.time()))
        result = await super().behave(task)
        await asyncio.sleep(self._takes_s)
        return result


class AskedAgent(DeployAgent):
    """Acts with approval only; what happens then is known by its key, or is not."""

    def __init__(self, name: str, side_effect: SideEffectClass, *, takes_s: float = 0.0) -> None:
        super().__init__(name, side_effect=side_effect)
        self.repeatable = side_effect == SIDE_EFFECT_CLASS_IDEMPOTENT
        self._takes_s = takes_s

    async def behave(self, task: AgentTask) -> AgentResult:
        result = await super().behave(task)
        await asyncio.sleep(self._takes_s)
        return result


class CrashPlanner(PlannerDouble):
    """Four steps, of which two act: one that may be repeated and one that may not."""

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> MakePlanResponse:
        question, again = request.question, request.HasField("revision")
        steps = hostile_steps(question)
        if steps is not None:
            plan = Plan(steps=[] if again else steps, origin="test")
            return MakePlanResponse(plan=plan, only_plan=True)
        if FAILS in question and again:
            raise InvalidArgument("There is no other plan for this.")
        if ASKS in question:
            steps = [_asking("put", "asks_keyed"), _asking("send", "asks_once")]
            steps += [step("wait", "slow")] * (WAITS in question)
        elif again:
            steps = [step("put", "keyed", "put @{outputs.look.x}"), step("send", "once")]
            steps *= MENDS in question
        elif MENDS in question or FAILS in question:
            steps = [step("look", "quick"), step("lost", "quick", "use @{outputs.look.nowhere}")]
        else:
            steps = [
                step("look", "quick"),
                step("put", "keyed", "put @{outputs.look.x}"),
                step("send", "once", "send @{outputs.look.x}"),
                step("sum", "slow" if WAITS in question else "quick", "", "put", "send"),
            ]
        return MakePlanResponse(plan=Plan(steps=steps, origin="test"))


def _asking(step_id: str, agent: str) -> Step:
    asking = step(step_id, agent, f"deploy {step_id} 1")
    asking.tools.append("trigger_deployment")
    return asking


@dataclass
class CrashHarness:
    """A harness with its agents, and all events that its clients got."""

    harness: Harness
    quick: WitnessAgent
    keyed: EffectAgent
    once: EffectAgent
    slow: WitnessAgent
    asks_keyed: AskedAgent
    asks_once: AskedAgent
    hostile: HostileAgent
    seen: list[Seen] = field(default_factory=list)

    @property
    def witnesses(self) -> list[WitnessAgent | EffectAgent]:
        return [self.quick, self.keyed, self.once, self.slow]


@asynccontextmanager
async def open_crash_harness(dsn: str, *, takes_s: float = 0.0) -> AsyncIterator[CrashHarness]:
    """Planner, composer and agents that take ``takes_s`` for a step, in front of a database."""
    async with open_harness(dsn, planner=CrashPlanner()) as harness:
        crash = CrashHarness(
            harness,
            WitnessAgent("quick", takes_s=takes_s),
            EffectAgent("keyed", SIDE_EFFECT_CLASS_IDEMPOTENT, takes_s=takes_s),
            EffectAgent("once", SIDE_EFFECT_CLASS_IRREVERSIBLE, takes_s=takes_s),
            WitnessAgent("slow"),
            AskedAgent("asks_keyed", SIDE_EFFECT_CLASS_IDEMPOTENT, takes_s=takes_s),
            AskedAgent("asks_once", SIDE_EFFECT_CLASS_IRREVERSIBLE, takes_s=takes_s),
            HostileAgent(),
        )
        crash.slow.gate.clear()
        await add_raw_agent(harness, crash.hostile)
        for agent in (*crash.witnesses, crash.asks_keyed, crash.asks_once):
            await harness.add_agent(agent)
        yield crash


@dataclass
class Gateway:
    process: ForkedProcess
    client: Client
    replica_id: UUID

    async def arm(self, failpoint: str) -> None:
        """Set the failpoint; it is in force once this returns."""
        self.process.stdin.write(f"{failpoint}\n".encode())
        await self.process.stdin.drain()
        answer = json.loads(await self.process.stdout.readline())
        assert answer == {"armed": failpoint}

    async def died(self, within_s: float = 45) -> None:
        """Wait until it has killed itself."""
        assert await asyncio.wait_for(self.process.wait(), within_s) == -signal.SIGKILL

    @property
    def stopped(self) -> bool:
        return self.process.stopped


@asynccontextmanager
async def replica_process(
    harness: Harness,
    failpoint: str = "disarm",
    *options: str,
    log: str = os.devnull,
    **overrides: object,
) -> AsyncIterator[Gateway]:
    """A gateway process whose replica id is known, with the product's settings but ``overrides``.

    Args:
        harness: What it stands on.
        failpoint: Where it is to fail, as :meth:`Gateway.arm` takes it.
        options: Of ``crashing_gateway.py``.
        log: File for what it logs.
        overrides: Settings of the gateway.

    Raises:
        ValueError: it ended before it could serve.
    """
    replica_id = uuid4()
    program = (str(PROGRAM), failpoint, "--replica-id", str(replica_id), *options)
    with Path(log).open("ab") as errors:  # noqa: ASYNC230
        started = gateway_process(harness, log=errors, program=program, **overrides)
        async with started as (process, client):
            yield Gateway(process, client, replica_id)


@asynccontextmanager
async def crashing_gateway(
    crash: CrashHarness, failpoint: str = "disarm", *options: str, **overrides: object
) -> AsyncIterator[Gateway]:
    """A gateway process with a failpoint; ``options`` are those of ``crashing_gateway.py``."""
    settings = {"max_failures": 1000, **overrides}
    async with replica_process(crash.harness, failpoint, *options, **settings) as gateway:
        yield gateway


async def follow_anywhere(where: Callable[[], Sequence[Client]], question: str, seen: Seen) -> None:
    """Ask and follow to the end, reconnecting to the next gateway behind the last event seen.

    Args:
        where: Clients of the gateways that there are at the moment, the preferred one first.
        question: What is asked.
        seen: Receives the client's events.
    """

    async def read(client: Client) -> bool:
        """One stream; what was read before an error counts."""
        call: Any
        if seen.events:
            request = WatchRunRequest(run_id=seen.events[0].run_id, **cursor(seen.events))
            call = client.stub.WatchRun(request, timeout=_STREAM_S)
        else:
            call = client.stream(question, request_id=seen.request_id, trace=True)
        try:
            async for message in call:
                assert message is not None, f"{question}: an event that clients cannot read"
                seen.events.append(message.event)
        finally:
            call.cancel()
        return bool(seen.events) and seen.events[-1].HasField("run_finished")

    await _anywhere(where, read, f"{question}: no end")


async def ask_anywhere(where: Callable[[], Sequence[Client]], question: str, seen: Seen) -> None:
    """The same by unary calls with one request id."""

    async def ask(client: Client) -> bool:
        seen.response = await client.ask(question, request_id=seen.request_id, trace=True)
        return True

    await _anywhere(where, ask, f"{question}: no answer")


async def cancel_anywhere(where: Callable[[], Sequence[Client]], seen: Seen) -> None:
    """Cancel the run; once this returns, the request was acknowledged."""
    request = CancelRunRequest(run_id=seen.events[0].run_id, reason="enough")

    async def cancel(client: Client) -> bool:
        await client.stub.CancelRun(request, timeout=_STREAM_S)
        seen.cancelled = True
        return True

    await _anywhere(where, cancel, "no gateway cancels")


async def _anywhere(
    where: Callable[[], Sequence[Client]], call: Callable[[Client], Awaitable[bool]], failure: str
) -> None:
    """Call one gateway after the other, as long as they are away, until one call returns true."""
    for turn in range(_MOST_RECONNECTS):
        clients = where()
        if clients:
            with may_be_away():
                if await call(clients[turn % len(clients)]):
                    return
        await asyncio.sleep(_BETWEEN_S)
    raise AssertionError(failure)


@contextmanager
def may_be_away() -> Iterator[None]:
    """Lets a gateway be away; any other error is wrong."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() not in _AWAY:
            raise
