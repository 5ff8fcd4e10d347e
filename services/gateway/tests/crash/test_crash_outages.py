"""PostgreSQL is lost, a gateway is cut off, frozen or hears nothing; the contract holds.

The processes go on, unlike in ``test_crash_points.py``: each must find out by itself what has
become of its runs.
"""

import asyncio
import signal
from contextlib import AsyncExitStack

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
    cancel_anywhere,
    crashing_gateway,
    open_crash_harness,
)
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.run_contract import Seen

from bos_postgres import acquire, open_database
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


async def test_cut_off_from_postgresql(crash: CrashHarness) -> None:
    """Until others have long taken over; and then it comes back."""
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(postgres_proxy(crash.harness.dsn))
        cut_off, other = await asyncio.gather(
            stack.enter_async_context(crashing_gateway(crash, store_url=proxy.dsn)),
            stack.enter_async_context(crashing_gateway(crash)),
        )
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


async def test_no_notification_ever_arrives(crash: CrashHarness) -> None:
    """What others commit is found by looking, on both sides: events, runs to adopt, a cancel."""
    async with AsyncExitStack() as stack:
        one, other, victim = await asyncio.gather(
            *(
                stack.enter_async_context(crashing_gateway(crash, "disarm", "--deaf"))
                for _ in range(3)
            )
        )
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
