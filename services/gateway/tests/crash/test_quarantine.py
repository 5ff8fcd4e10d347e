"""Quarantine with default settings: a run that kills its owners, frozen gateways, others."""

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import asyncpg
import grpc
import pytest
from gateway_harness.crash.harness import replica_process
from gateway_harness.harness import Client, Harness

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import RUN_STATUS_FAILED, RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import LogEvent
from bos_agentkit import AgentTask
from bos_testkit.agents import EchoAgent, RecordingAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

# Those of the product, in the place of the shorter ones that other tests use.
DEFAULTS = {"lease_s": 3.0, "lease_renewal_s": 1.0}
INNOCENTS, GATEWAYS, MAX_FAILURES = 20, 3, 5
SLOW_S, KILLS_AFTER_S = 3.0, 1.0


class Slow(RecordingAgent):
    """Takes its time for an answer."""

    async def behave(self, task: AgentTask) -> AgentResult:
        await asyncio.sleep(SLOW_S)
        return await super().behave(task)


class Deadly(RecordingAgent):
    """Never answers; the owner of the run does not survive the call for long."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.called = asyncio.Semaphore(0)

    async def behave(self, task: AgentTask) -> AgentResult:
        self.called.release()
        await asyncio.Event().wait()
        raise AssertionError


class Fleet:
    """Gateway processes by the ids of their replicas."""

    def __init__(self, harness: Harness, stack: AsyncExitStack) -> None:
        self._harness, self._stack = harness, stack
        self.processes: dict[UUID, ForkedProcess] = {}

    async def start(self) -> tuple[UUID, Client]:
        opening = replica_process(self._harness, **DEFAULTS)
        gateway = await self._stack.enter_async_context(opening)
        self.processes[gateway.replica_id] = gateway.process
        return gateway.replica_id, gateway.client

    async def kill(self, replica_id: UUID) -> None:
        process = self.processes.pop(replica_id)
        process.kill()
        await process.wait()


async def until_served(client: Client) -> Any:
    """The response of a gateway that may need a moment to come back."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await client.ask("Back again?")
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)


async def under_way(client: Client, question: str) -> None:
    """Ask, and leave once it is accepted."""
    call = client.stream(question)
    await call.read()
    call.cancel()


@pytest.mark.timeout(600)
async def test_run_that_kills_its_owners_is_given_up_alone(harness: Harness) -> None:
    deadly, slow = Deadly("deadly"), Slow("slow")
    await harness.add_agent(slow)
    await harness.add_agent(deadly)
    connection = await asyncpg.connect(harness.dsn, server_settings={"search_path": "gateway"})
    kills = 0

    async def kill_its_owners(fleet: Fleet) -> None:
        nonlocal kills
        while True:
            await deadly.called.acquire()
            await asyncio.sleep(KILLS_AFTER_S)  # the poison is faster than the innocent's steps
            poison = "SELECT replica_id FROM runs WHERE question = 'Poison?'"
            kills += 1
            await fleet.kill(await connection.fetchval(poison))
            await fleet.start()

    async with AsyncExitStack() as stack:
        fleet = Fleet(harness, stack)
        _, client = await fleet.start()
        await asyncio.gather(*(fleet.start() for _ in range(GATEWAYS - 1)))
        harness.planner.steps = [step("a", "slow")]
        await asyncio.gather(*(under_way(client, f"Innocent {n}?") for n in range(INNOCENTS)))
        await eventually(lambda: len(slow.inputs) >= INNOCENTS)
        harness.planner.steps = [step("a", "deadly")]
        await under_way(client, "Poison?")
        killer = asyncio.create_task(kill_its_owners(fleet))
        watching = await asyncpg.connect(harness.dsn, server_settings={"search_path": "gateway"})
        async with asyncio.timeout(240):
            while await watching.fetchval("SELECT count(*) FROM runs WHERE finished_at IS NULL"):
                assert not killer.done(), killer.result()
                await asyncio.sleep(0.2)
        killer.cancel()
        await asyncio.gather(killer, return_exceptions=True)
        rows = await watching.fetch(
            "SELECT question = 'Poison?' AS poison, payload FROM runs JOIN run_events "
            "USING (run_id) WHERE kind = 'run_finished'"
        )
        hit = await watching.fetch("SELECT failures FROM runs WHERE question <> 'Poison?'")
        await watching.close()
    await connection.close()
    ends: Counter[tuple[bool, int, str]] = Counter()
    for row in rows:
        response = LogEvent.FromString(row["payload"]).run_finished.response
        ends[row["poison"], response.status, response.error.type] += 1
    assert ends == {
        (False, RUN_STATUS_SUCCEEDED, ""): INNOCENTS,
        (True, RUN_STATUS_FAILED, "OwnersDied"): 1,
    }
    assert kills == MAX_FAILURES
    assert sum(row["failures"] > 0 for row in hit) >= INNOCENTS // 2, "they stood beside it"
    assert max(row["failures"] for row in hit) < MAX_FAILURES - 1


async def test_frozen_gateway_loses_its_sessions_and_serves_again(
    harness: Harness,
) -> None:
    """Its locks, its snapshot and its place in the queue of notifications end with its sessions."""
    echo = EchoAgent("echo")
    await harness.add_agent(echo)
    sessions = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE '%' || $1"
    )
    connection = await asyncpg.connect(harness.dsn)

    async def until_sessions(replica_id: UUID, *, any_left: bool) -> None:
        async with asyncio.timeout(60):
            while bool(await connection.fetchval(sessions, str(replica_id))) != any_left:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async with AsyncExitStack() as stack:
        fleet = Fleet(harness, stack)
        frozen, client = await fleet.start()
        alive, _ = await fleet.start()
        await until_sessions(frozen, any_left=True)
        # It does not read any more: the server stands in the middle of sending to the listener.
        fleet.processes[frozen].send_signal(signal.SIGSTOP)
        for _ in range(20):
            await connection.execute(
                "SELECT pg_notify('bos_gateway_runs', 'events ' || gen_random_uuid()) "
                "FROM generate_series(1, 5000)"
            )
        await until_sessions(frozen, any_left=False)
        assert await connection.fetchval(sessions, str(alive)), "the living are left in peace"
        async with asyncio.timeout(60):
            while await connection.fetchval("SELECT pg_notification_queue_usage()") > 0.001:
                await connection.execute("SELECT pg_notify('bos_gateway_runs', 'events')")
        fleet.processes[frozen].send_signal(signal.SIGCONT)
        await until_sessions(frozen, any_left=True)
        harness.planner.steps = [step("a", "echo")]
        assert (await until_served(client)).status == RUN_STATUS_SUCCEEDED
    await connection.close()
