"""PostgreSQL is lost, a gateway is cut off, frozen or hears nothing; the contract holds.

The processes go on, unlike in ``test_crash_points.py``: each must find out by itself what has
become of its runs.
"""

import asyncio
import signal
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import pytest
from gateway_harness.crash.clients import (
    EACH,
    Clients,
    adopted,
    at,
    gateways,
    has_seen,
    lease_ran_out,
    until_waiting,
)
from gateway_harness.crash.crashing_postgres import crashing_postgres
from gateway_harness.crash.harness import (
    WAITS,
    CrashHarness,
    ask_anywhere,
    cancel_anywhere,
    crashing_gateway,
    open_crash_harness,
)
from gateway_harness.harness import open_harness
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.run_contract import Seen
from gateway_harness.stored import fetch, fetchval, until

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_postgres import acquire, open_database
from bos_testkit.agents import SlowAgent
from bos_testkit.waiting import eventually

pytestmark = [pytest.mark.crash, pytest.mark.postgres]


async def test_postgresql_restarted_under_load() -> None:
    async with (
        crashing_postgres() as postgres,
        open_crash_harness(postgres.dsn) as crash,
        gateways(crash, "disarm", "disarm") as (one, other),
    ):
        clients = Clients(crash)
        for _ in range(3):
            asked = clients.ask(at(one, other), "Go on?", EACH)
            asked += clients.ask(at(other, one), "Go on?", EACH)
            await eventually(lambda asked=asked: has_seen(asked, "planned", 1))
            await postgres.crash()
            await postgres.start()
        await clients.ended()


async def test_gateway_goes_on_at_another_address_of_its_database() -> None:
    slow = SlowAgent("slow")
    async with (
        crashing_postgres() as postgres,
        postgres_proxy(postgres.dsn) as second,
        open_harness(postgres.dsn) as harness,
        AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(postgres_proxy(postgres.dsn))
        addresses = [urlsplit(proxy.dsn).netloc.rpartition("@")[2] for proxy in (first, second)]
        both = second.dsn.replace(addresses[1], ",".join(addresses))
        await harness.plan(slow)
        async with harness.gateway(store_url=both, lease_s=30.0) as gateway:
            asked = asyncio.create_task(gateway.ask())
            await slow.started.wait()
            await stack.aclose()  # the first address is gone, and does not come back
            slow.release.set()
            assert (await asked).status == RUN_STATUS_SUCCEEDED
            assert (await gateway.ask("And now?")).status == RUN_STATUS_SUCCEEDED
    assert len(slow.inputs) == 2


async def test_cut_off_from_postgresql(crash: CrashHarness) -> None:
    """Until others have long taken over; and then it comes back."""
    async with (
        postgres_proxy(crash.harness.dsn) as proxy,
        crashing_gateway(crash, store_url=proxy.dsn) as cut_off,
        crashing_gateway(crash) as other,
    ):
        clients = Clients(crash)
        clients.ask(at(cut_off, other), WAITS, EACH)
        clients.ask(at(cut_off, other), "Go on?", EACH)
        await until_waiting(crash, EACH)
        proxy.cut()
        await adopted(crash)
        crash.slow.gate.set()
        proxy.mend()
        await clients.ended()


async def test_statement_stands_if_its_connection_is_not_returned(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off in between: a client that got its answer must not get an error as well."""
    monkeypatch.setattr("bos_postgres.connections._CLOSE_TIMEOUT_S", 0.1)
    async with (
        postgres_proxy(postgres_dsn) as proxy,
        open_database(proxy.dsn, schema="public", max_size=1) as pool,
    ):
        async with acquire(pool) as connection:
            assert await connection.fetchval("SELECT 1") == 1
            proxy.cut()
        proxy.mend()
        async with acquire(pool) as connection:
            assert await connection.fetchval("SELECT 2") == 2


@pytest.mark.parametrize(
    "point", ["step_finished:before", "run_accepted:after", "answer_started:after"]
)
async def test_frozen_past_its_lease(crash: CrashHarness, point: str) -> None:
    """It wakes up in the middle of what others have long taken over, and goes on serving."""
    # No run ends before it froze: the last events of all of them might be committed as one.
    crash.harness.composer.release = asyncio.Event()
    async with gateways(crash, f"stop {point}", "disarm") as (frozen, other):
        clients = Clients(crash)
        clients.ask(at(frozen, other), "Go on?", EACH)
        clients.ask(at(other), "Go on?", EACH)
        await eventually(lambda: frozen.stopped)
        await lease_ran_out(crash, frozen)
        await adopted(crash)
        crash.harness.composer.release.set()
        frozen.process.send_signal(signal.SIGCONT)
        await clients.ended(may_be_late=True)
        clients.ask(at(frozen), "Still there?", 2)
        await clients.ended(may_be_late=True)


async def test_frozen_gateway_loses_its_sessions_and_serves_again(crash: CrashHarness) -> None:
    """Its locks, its snapshot and its place in the queue of notifications end with its sessions."""
    dsn = crash.harness.dsn
    sessions = (
        "count(*) {} FROM pg_stat_activity "
        "WHERE datname = current_database() AND application_name LIKE '%' || $1"
    )
    async with gateways(crash, "disarm", "disarm") as (frozen, alive):
        await until(dsn, sessions.format("> 0"), str(frozen.replica_id))
        # It does not read any more: the server stands in the middle of sending to the listener.
        frozen.process.send_signal(signal.SIGSTOP)
        for _ in range(20):
            await fetch(
                dsn,
                "SELECT pg_notify('bos_gateway_runs', 'events ' || gen_random_uuid()) "
                "FROM generate_series(1, 5000)",
            )
        await until(dsn, sessions.format("= 0"), str(frozen.replica_id))
        assert await fetchval(dsn, f"SELECT {sessions.format('')}", str(alive.replica_id))
        await until(
            dsn,
            "pg_notification_queue_usage() < 0.001 "
            "FROM (SELECT pg_notify('bos_gateway_runs', 'events')) AS moves_the_queue_on",
        )
        frozen.process.send_signal(signal.SIGCONT)
        await until(dsn, sessions.format("> 0"), str(frozen.replica_id))
        seen = Seen("back")
        await ask_anywhere(at(frozen), "Back again?", seen)
        assert seen.response.status == RUN_STATUS_SUCCEEDED


async def test_no_notification_ever_arrives(crash: CrashHarness) -> None:
    """What others commit is found by looking, on both sides: events, runs to adopt, a cancel."""
    async with (
        crashing_gateway(crash, "disarm", "--deaf") as one,
        crashing_gateway(crash, "disarm", "--deaf") as other,
        crashing_gateway(crash, "disarm", "--deaf") as victim,
    ):
        clients = Clients(crash)
        # Asked here, followed there.
        for here, there in ((one, other), (other, one), (victim, one)):
            (seen,) = clients.ask(at(here, there), WAITS, 1)
            same = Seen(seen.request_id)
            clients.follow(at(there), f"{WAITS} 0", same)
        (stopped,) = clients.ask(at(one), WAITS, 1)
        await until_waiting(crash, 4)
        await cancel_anywhere(at(other), stopped)
        victim.process.send_signal(signal.SIGTERM)
        await victim.process.wait()
        # Its owner looks within a second; were the gate open by then, the run might just end well.
        await eventually(lambda: stopped.events[-1].HasField("run_finished"))
        crash.slow.gate.set()
        await clients.ended()
