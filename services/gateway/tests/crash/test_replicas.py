"""Several gateways on one PostgreSQL: hand-over, messages between them, outages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
from gateway_harness.harness import SHORT_LEASE, Client, Harness, kinds
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.stored import adoptions, fetchval, log_of, until
from gateway_harness.streamed import answer_text, logged, run_under_way, seen_until

from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_SUCCEEDED,
    RunEvent,
)
from bos_gateway.run_log import notifications
from bos_gateway.runs import background
from bos_testkit.agents import SlowAgent
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash


@pytest.fixture
async def slow(harness: Harness) -> SlowAgent:
    """The agent of the only step of every plan."""
    return await harness.plan(SlowAgent("slow"))


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways of this process look for inputs only when a message says that there are some."""
    monkeypatch.setattr(notifications, "POLL_S", 600.0)
    monkeypatch.setattr(background, "POLL_S", 600.0)


def check_complete(events: list[RunEvent]) -> None:
    """The contract towards one client: every event once, in order, and one end."""
    sequences = [event.sequence for event in logged(events)]
    assert sequences == sorted(set(sequences))
    assert events[-1].run_finished.response.answer.startswith(answer_text(events))
    assert [e.HasField("run_finished") for e in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED


async def cancel_elsewhere(one: Client, other: Client, slow: SlowAgent) -> None:
    run_id = await run_under_way(one, slow)
    await other.cancel(run_id, "enough")
    async with asyncio.timeout(60):
        await slow.cancelled.wait()
    events = await other.watch(run_id)
    assert events[-1].run_finished.response.status == RUN_STATUS_CANCELLED
    assert kinds(events).count("cancel_requested") == 1


@pytest.mark.usefixtures("no_polls")
async def test_cancel_at_another_replica_reaches_owner_by_message(
    harness: Harness, slow: SlowAgent
) -> None:
    async with harness.gateway() as one, harness.gateway() as other:
        await cancel_elsewhere(one, other, slow)


async def test_cancel_arrives_although_listening_connection_was_lost(
    harness: Harness, slow: SlowAgent
) -> None:
    async with harness.gateway() as one, harness.gateway() as other:
        assert await fetchval(
            harness.dsn,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE application_name LIKE 'bos-gateway-listener%' AND datname = current_database()",
        )
        await cancel_elsewhere(one, other, slow)


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
    harness: Harness, slow: SlowAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Followers say again that they follow only when they poll.
    monkeypatch.setattr(notifications, "_FOLLOWED_S", 600.0)
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


async def test_postgresql_outage_moves_no_run_and_counts_no_death(
    harness: Harness, slow: SlowAgent
) -> None:
    async with (
        postgres_proxy(harness.dsn) as proxy,
        harness.gateway(store_url=proxy.dsn, **SHORT_LEASE) as one,
        harness.gateway(store_url=proxy.dsn, **SHORT_LEASE) as other,
    ):
        runs = [(await seen_until(client, "step_started"))[0].run_id for client in (one, other)]
        proxy.cut()
        await slow.cancelled.wait()
        await until(harness.dsn, "max(lease_until) < now() FROM replicas")
        proxy.mend()
        await eventually(lambda: len(slow.inputs) >= 4)
        slow.release.set()
        for client, run_id in zip((other, one), runs, strict=True):
            check_complete(await client.watch(run_id))
    assert adoptions(await log_of(harness.dsn)) == {"resumed": 2}
