"""Several gateways on one PostgreSQL, any of which may die, freeze or be drained at any moment."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from gateway_harness.crash.harness import follow_anywhere
from gateway_harness.disconnects import seen_until
from gateway_harness.harness import SHORT_LEASE, Client, Harness, gateway_process, kinds
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.run_contract import Seen
from gateway_harness.streamed import answer_text, logged

from bos.agent.v1 import SIDE_EFFECT_CLASS_IDEMPOTENT, AgentResult
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_SUCCEEDED,
    CancelRunRequest,
    RunEvent,
)
from bos.runlog.v1 import LogEvent
from bos_agentkit import AgentTask
from bos_gateway.run_log import notifications
from bos_gateway.runs import background
from bos_testkit.agents import CountingAgent, EchoAgent, SlowAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash

_RUNS = 20


class GatedAgent(CountingAgent):
    """Leaves its mark only once the gate is open; what is cancelled before leaves none."""

    def __init__(self, name: str) -> None:
        super().__init__(name, side_effect=SIDE_EFFECT_CLASS_IDEMPOTENT)
        self.gate = asyncio.Event()

    async def behave(self, task: AgentTask) -> AgentResult:
        await self.gate.wait()
        return await super().behave(task)


@asynccontextmanager
async def two_gateways(
    harness: Harness, **overrides: object
) -> AsyncIterator[tuple[tuple[ForkedProcess, Client], ...]]:
    async with AsyncExitStack() as stack:
        opening = [
            stack.enter_async_context(gateway_process(harness, **overrides)) for _ in range(2)
        ]
        yield tuple([await each for each in opening])


async def followed(
    gateways: Sequence[tuple[ForkedProcess, Client]], question: str, request_id: str
) -> list[RunEvent]:
    """The events of a run as a client sees them that reconnects to the next gateway that lives."""
    seen = Seen(request_id)

    def alive() -> list[Client]:
        """The port of one that has ended may be another's."""
        return [client for process, client in gateways if process.returncode is None]

    await follow_anywhere(alive, question, seen)
    return seen.events


async def log_of(dsn: str, run_id: str | None = None) -> list[LogEvent]:
    """The stored events of a run, or of all runs, in order."""
    connection = await asyncpg.connect(dsn)
    rows = await connection.fetch(
        "SELECT run_id, sequence, payload FROM gateway.run_events "
        "WHERE $1::uuid IS NULL OR run_id = $1 ORDER BY run_id, sequence",
        run_id,
    )
    await connection.close()
    expected: Counter[UUID] = Counter()
    for row in rows:
        expected[row["run_id"]] += 1
        assert row["sequence"] == expected[row["run_id"]], "a gap"
    return [LogEvent.FromString(row["payload"]) for row in rows]


def adoptions(log: list[LogEvent]) -> Counter[str]:
    return Counter(event.run_adopted.reason for event in log if event.HasField("run_adopted"))


def check_complete(events: list[RunEvent]) -> None:
    """The contract towards one client: every event once, in order, and one end."""
    sequences = [event.sequence for event in logged(events)]
    assert sequences == sorted(set(sequences))
    assert events[-1].run_finished.response.answer.startswith(answer_text(events))
    assert [e.HasField("run_finished") for e in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED


async def quick_and_gated(harness: Harness) -> tuple[EchoAgent, GatedAgent]:
    """The agents of both steps of many runs."""
    quick, gated = EchoAgent("quick"), GatedAgent("gated")
    await harness.add_agent(quick)
    await harness.add_agent(gated)
    harness.planner.steps = [step("a", "quick"), step("b", "gated", "", "a")]
    return quick, gated


async def ask_many(
    dsn: str, gateways: Sequence[tuple[ForkedProcess, Client]], agent: GatedAgent
) -> list[Any]:
    """Runs under way on both gateways, each waiting for its second step."""
    asked = [
        asyncio.create_task(
            followed([gateways[n % 2], gateways[1 - n % 2]], f"Question {n}?", f"r{n}")
        )
        for n in range(_RUNS)
    ]
    await eventually(lambda: len(agent.inputs) >= _RUNS or any(task.done() for task in asked))
    assert not [task.result() for task in asked if task.done()]
    async with asyncio.timeout(60):  # agents are called while their dispatches are on their way
        while sum(e.HasField("step_dispatched") for e in await log_of(dsn)) < 2 * _RUNS:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # of the database, so no event could say so
    return asked


@pytest.mark.requirement("C-31")
async def test_killed_replica_loses_no_run_and_repeats_no_ended_step(harness: Harness) -> None:
    quick, gated = await quick_and_gated(harness)
    # Long enough for a busy machine: the survivor must not lose its own lease.
    async with two_gateways(harness, lease_s=10) as gateways:
        asked = await ask_many(harness.dsn, gateways, gated)
        first, _ = gateways[0]
        first.kill()
        await first.wait()
        await eventually(lambda: len(gated.inputs) >= _RUNS * 3 // 2)
        gated.gate.set()
        for events in await asyncio.gather(*asked):
            check_complete(events)
    keys = Counter(given.metadata.step_key for given in quick.inputs)
    assert len(keys) == _RUNS
    assert set(keys.values()) == {1}
    log = await log_of(harness.dsn)
    assert adoptions(log) == {"lease_expired": _RUNS // 2}
    assert sum(event.HasField("run_finished") for event in log) == _RUNS


async def test_drained_replica_hands_over_runs_without_lease_expiry(
    harness: Harness,
) -> None:
    _, gated = await quick_and_gated(harness)
    async with two_gateways(harness, lease_s=60) as gateways:
        asked = await ask_many(harness.dsn, gateways, gated)
        first, _ = gateways[0]
        first.send_signal(signal.SIGTERM)
        await first.wait()
        await eventually(lambda: len(gated.inputs) >= _RUNS * 3 // 2)
        gated.gate.set()
        for events in await asyncio.gather(*asked):
            check_complete(events)
    log = await log_of(harness.dsn)
    assert adoptions(log) == {"released": _RUNS // 2}
    released = [event.run_released for event in log if event.HasField("run_released")]
    assert {event.reason for event in released} == {"drain"}
    assert len(released) == _RUNS // 2


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways of this process look for inputs only when a message says that there are some."""
    monkeypatch.setattr(notifications, "POLL_S", 600.0)
    monkeypatch.setattr(background, "POLL_S", 600.0)


@pytest.mark.usefixtures("no_polls")
async def test_cancel_at_another_replica_reaches_owner_by_message(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway() as one, harness.gateway() as other:
        seen = await seen_until(one, "step_started")
        await slow.started.wait()
        await other.stub.CancelRun(CancelRunRequest(run_id=seen[0].run_id, reason="enough"))
        async with asyncio.timeout(60):
            await slow.cancelled.wait()
        events = await other.watch(seen[0].run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
    assert [kind for kind in kinds(events) if kind == "cancel_requested"] == ["cancel_requested"]


@asynccontextmanager
async def owner_hears_followers(dsn: str) -> AsyncIterator[asyncio.Event]:
    """Set once the owner of the only run has heard that it is followed, which it answers."""
    answered, asked = asyncio.Event(), asyncio.Event()

    def hear(_connection: object, _pid: int, _channel: str, message: object) -> None:
        if str(message).startswith("follow "):
            asked.set()
        elif str(message).startswith("events ") and asked.is_set():
            answered.set()

    connection = await asyncpg.connect(dsn)
    try:
        await connection.add_listener(notifications.CHANNEL, hear)
        yield answered
    finally:
        await connection.close()


@pytest.mark.usefixtures("no_polls")
async def test_watching_at_another_replica_sees_every_event_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Followers say again that they follow only when they poll.
    monkeypatch.setattr(notifications, "_FOLLOWED_S", 600.0)
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    harness.composer.deltas = [f"{n} " for n in range(50)]
    async with (
        harness.gateway(delta_window_s=0) as one,
        harness.gateway() as other,
        owner_hears_followers(harness.dsn) as answered,
        asyncio.timeout(120),
    ):
        asked = asyncio.create_task(one.events("Both?", request_id="both"))
        await slow.started.wait()
        same = asyncio.create_task(other.ask("Both?", request_id="both"))
        there: list[RunEvent] = []
        async for message in other.stream("Both?", request_id="both"):
            there.append(message.event)
            if message.event.HasField("step_started"):
                await answered.wait()
                slow.release.set()
        here = await asked
        response = await same
    assert logged(there) == logged(here)
    check_complete(here)
    assert response.run_id == here[0].run_id
    assert len(harness.planner.requests) == 1


async def test_postgresql_outage_moves_no_run_and_counts_no_death(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with (
        postgres_proxy(harness.dsn) as proxy,
        harness.gateway(store_url=proxy.dsn, **SHORT_LEASE) as one,
        harness.gateway(store_url=proxy.dsn, **SHORT_LEASE) as other,
    ):
        runs = [(await seen_until(client, "step_started"))[0].run_id for client in (one, other)]
        proxy.cut()
        await slow.cancelled.wait()
        connection = await asyncpg.connect(harness.dsn)
        left_s = await connection.fetchval(
            "SELECT extract(epoch FROM max(lease_until) - now())::float8 FROM gateway.replicas"
        )
        await connection.execute("SELECT pg_sleep($1)", max(0.0, left_s) + 0.1)
        await connection.close()
        proxy.mend()
        await eventually(lambda: len(slow.inputs) >= 4)
        slow.release.set()
        for client, run_id in zip((other, one), runs, strict=True):
            check_complete(await client.watch(run_id))
    assert adoptions(await log_of(harness.dsn)) == {"resumed": 2}


async def test_cancel_arrives_although_listening_connection_was_lost(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway() as one, harness.gateway() as other:
        seen = await seen_until(one, "step_started")
        await slow.started.wait()
        connection = await asyncpg.connect(harness.dsn)
        assert await connection.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name LIKE 'bos-gateway-listener%' AND datname = current_database()"
        )
        await connection.close()
        await other.stub.CancelRun(CancelRunRequest(run_id=seen[0].run_id, reason="enough"))
        async with asyncio.timeout(60):
            await slow.cancelled.wait()
