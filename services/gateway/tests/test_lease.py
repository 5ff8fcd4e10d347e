"""The lease: who is alive, judged by the database; who may go on, judged more strictly here."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

from bos_chassis.telemetry import Telemetry
from bos_gateway.clock import DatabaseClock, monotonic
from bos_gateway.lease import Lease
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership import Ownership
from bos_gateway.poison import LEASE_EXPIRED, RELEASED, RESUMED
from bos_gateway.run_log import SCHEMA
from bos_gateway.service import MIGRATIONS
from bos_postgres import connect, migrate, open_database
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

LEASE_S = 1.0


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    await migrate(postgres_dsn, MIGRATIONS, schema=SCHEMA)
    async with open_database(postgres_dsn, schema=SCHEMA, max_size=4) as opened:
        yield opened


@asynccontextmanager
async def held_lease(
    dsn: str, pool: asyncpg.Pool[asyncpg.Record], **more: float
) -> AsyncIterator[tuple[Lease, Ownership]]:
    """A lease that was just taken and is being renewed."""
    ownership = Ownership(pool, uuid4(), LEASE_S)
    telemetry = Telemetry.for_tests("lease")
    lease = Lease(
        dsn,
        ownership.replica_id,
        lease_s=LEASE_S,
        renewal_s=0.1,
        telemetry=telemetry,
        clock=DatabaseClock(telemetry, GatewayMetrics(telemetry.registry)),
        **more,
    )
    async with lease:
        sent = monotonic()
        written_at, _ = await ownership.take()
        lease.taken(sent, written_at)
        yield lease, ownership


async def insert_run(
    pool: asyncpg.Pool[asyncpg.Record], owner: UUID | None, run_id: UUID | None = None
) -> UUID:
    run_id = run_id or uuid4()
    await pool.execute(
        "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, "
        "replica_id) VALUES ($1, 'u', $2, '', '?', 1, $3)",
        run_id,
        str(run_id),
        owner,
    )
    return run_id


async def expire(pool: asyncpg.Pool[asyncpg.Record], replica_id: UUID) -> None:
    await pool.execute(
        "UPDATE replicas SET lease_until = now() - interval '1 ms' WHERE replica_id = $1",
        replica_id,
    )


async def test_lease_is_renewed_while_the_main_loop_is_blocked(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with held_lease(postgres_dsn, pool) as (lease, _):
        time.sleep(LEASE_S * 1.5)  # noqa: ASYNC251 - the very thing under test
        assert lease.held


async def test_lease_is_not_kept_up_for_a_main_loop_that_is_stuck_for_good(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with held_lease(postgres_dsn, pool, stuck_after_s=0.3) as (lease, _):
        time.sleep(LEASE_S * 2)  # noqa: ASYNC251 - the very thing under test
        assert not lease.held
        assert await pool.fetchval("SELECT lease_until < now() FROM replicas")


async def test_lease_that_ran_out_on_the_databases_clock_is_lost_and_not_renewed(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with held_lease(postgres_dsn, pool) as (lease, ownership):
        await expire(pool, ownership.replica_id)
        async with asyncio.timeout(LEASE_S):
            await lease.until_lost()
        assert await pool.fetchval("SELECT count(*) FROM replicas WHERE lease_until > now()") == 0


async def test_lease_is_lost_in_time_and_for_good_when_a_renewal_takes_too_long(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with (
        held_lease(postgres_dsn, pool) as (lease, ownership),
        connect(postgres_dsn, schema=SCHEMA) as other,
    ):
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM replicas FOR UPDATE")
        await lease.until_lost()
        # Whoever judges by the database has not seen it run out yet.
        assert await other.fetchval("SELECT clock_timestamp() < max(lease_until) FROM replicas")
        await transaction.rollback()
        await eventually(lambda: lease.others_judged_until() is None)
        assert not lease.held
        sent = monotonic()
        written_at, _ = await ownership.take()
        lease.taken(sent, written_at)
        assert lease.held
        await eventually(lambda: lease.others_judged_until() is not None)
        assert lease.held


async def test_lease_survives_the_loss_of_its_connection(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    async with held_lease(postgres_dsn, pool) as (lease, _):
        killed = 0
        async with asyncio.timeout(5):
            while not killed:
                killed = await pool.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                    "WHERE application_name = 'bos-gateway-lease'"
                )
        await eventually(lambda: lease.others_judged_until() is None)
        await eventually(lambda: lease.others_judged_until() is not None)
        assert lease.held


async def test_taking_the_lease_again_raises_the_epoch_of_what_is_still_ours(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    ownership = Ownership(pool, uuid4(), LEASE_S)
    assert (await ownership.take())[1] == []
    ours, other = await insert_run(pool, ownership.replica_id), await insert_run(pool, uuid4())
    _, (taken,) = await ownership.take()
    assert (taken.run_id, taken.epoch, taken.reason) == (ours, 2, RESUMED)
    assert await pool.fetchval("SELECT epoch FROM runs WHERE run_id = $1", other) == 1


@pytest.mark.parametrize("statement", ["take", "release_all"])
async def test_runs_are_locked_in_the_order_of_their_ids_as_the_log_writer_locks_them(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record], statement: str
) -> None:
    ownership = Ownership(pool, uuid4(), LEASE_S)
    first, second = sorted([uuid4(), uuid4()])
    for run_id in (second, first):
        await insert_run(pool, ownership.replica_id, run_id)
    async with connect(postgres_dsn, schema=SCHEMA) as other:
        async with other.transaction():
            await other.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", first)
            waits = asyncio.create_task(getattr(ownership, statement)())
            await until_locked(pool)
            await other.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE NOWAIT", second)
        await waits


async def test_runs_are_let_go_also_by_the_victim_of_a_deadlock(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> None:
    ownership = Ownership(pool, uuid4(), LEASE_S)
    first, second = sorted([uuid4(), uuid4()])
    for run_id in (second, first):
        await insert_run(pool, ownership.replica_id, run_id)
    async with connect(postgres_dsn, schema=SCHEMA) as other:
        await other.execute("SET deadlock_timeout = '10min'")  # so it is never the victim
        async with other.transaction():
            await other.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", second)
            release = asyncio.create_task(ownership.release_all())
            await until_locked(pool)
            await other.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", first)
        await release
    assert await pool.fetchval("SELECT count(*) FROM runs WHERE replica_id IS NULL") == 2


async def until_locked(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    """Return once a statement waits for a lock."""
    async with asyncio.timeout(30):
        while not await pool.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE wait_event_type = 'Lock' AND datname = current_database()"
        ):
            pass


@pytest.mark.parametrize(
    ("judged_for_s", "expired"),
    [(10, True), (None, False), pytest.param(-0.001, False, id="sent before an outage")],
)
async def test_after_an_outage_only_released_runs_are_adopted(
    pool: asyncpg.Pool[asyncpg.Record], judged_for_s: float | None, expired: bool
) -> None:
    dead, alive, adopter = (Ownership(pool, uuid4(), LEASE_S) for _ in range(3))
    for replica in (dead, alive, adopter):
        now, _ = await replica.take()
    until = None if judged_for_s is None else now + timedelta(seconds=judged_for_s)
    of_dead = await insert_run(pool, dead.replica_id)
    await insert_run(pool, alive.replica_id)
    released = await insert_run(pool, None)
    await expire(pool, dead.replica_id)
    adopted = {run.run_id: run.reason for run in await adopter.adopt(9, judge_until=until)}
    assert adopted == ({released: RELEASED} | ({of_dead: LEASE_EXPIRED} if expired else {}))


async def test_next_expiry_is_that_of_the_living_others(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    ownership, other, dead = (Ownership(pool, uuid4(), LEASE_S) for _ in range(3))
    await ownership.take()
    assert await ownership.next_expiry_s() is None
    await dead.take()
    await expire(pool, dead.replica_id)
    assert await ownership.next_expiry_s() is None
    await other.take()
    left_s = await ownership.next_expiry_s()
    assert left_s is not None
    assert 0 <= left_s <= LEASE_S
