"""The lease: who is alive, judged by the database; who may go on, judged more strictly here."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from gateway_harness.admission import run_of, writers
from gateway_harness.ownership_rows import Pool, adopt, expire, insert_run, owner_of
from gateway_harness.stored import WAITS_FOR_A_LOCK, fetchval, until

from bos.gateway.v1 import RUN_STATUS_FAILED
from bos.runlog.v1 import LogEvent
from bos_chassis.telemetry import Telemetry
from bos_gateway.core.fold import fold
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership.clock import DatabaseClock, monotonic
from bos_gateway.ownership.lease import _RENEW as RENEW
from bos_gateway.ownership.lease import Lease
from bos_gateway.ownership.owners import Adopted, Look, Ownership
from bos_gateway.ownership.poison import RESUMED
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.runs.feed import RunFeed
from bos_gateway.runs.orchestrator import Orchestrator
from bos_postgres import connect
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash

# Longer than any test takes; where a lease runs out, its clock was set forward.
LEASE_S = 600.0


@dataclass
class HeldLease:
    """A lease that was just taken and is being renewed, by a clock that tests set forward."""

    lease: Lease
    ownership: Ownership
    telemetry: Telemetry
    ahead_s: float = 0.0

    def monotonic(self) -> float:
        return monotonic() + self.ahead_s

    async def take(self) -> None:
        sent = self.monotonic()
        written_at, _ = await self.ownership.take()
        self.lease.taken(sent, written_at)

    async def renewed(self) -> None:
        """Until a renewal was sent at the present time."""
        lasts = 0.8 * LEASE_S
        await eventually(lambda: self.lease._held_until > self.monotonic() + lasts)

    async def lives_a_lease(self) -> None:
        """All the time for which a lease lives passes, with renewals on the way."""
        for _ in range(2):
            assert self.lease.others_judged_until() is None
            self.ahead_s += 0.5 * LEASE_S
            await self.renewed()

    def stuck(self) -> int:
        """How often it was logged that the main loop is stuck."""
        return sum(entry["logger"] == "bos.gateway.lease" for entry in self.telemetry.logs)


@pytest.fixture
async def held(
    postgres_dsn: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HeldLease]:
    ownership = Ownership(pool, uuid4(), LEASE_S)
    telemetry = Telemetry.for_tests("lease")
    lease = Lease(
        postgres_dsn,
        ownership.replica_id,
        lease_s=LEASE_S,
        renewal_s=0.1,
        telemetry=telemetry,
        clock=DatabaseClock(telemetry, GatewayMetrics(telemetry.registry)),
    )
    found = HeldLease(lease, ownership, telemetry)
    monkeypatch.setattr("bos_gateway.ownership.lease.monotonic", found.monotonic)
    async with lease:
        await found.take()
        yield found


def block_main_loop(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


async def test_lease_is_renewed_while_the_main_loop_is_blocked(held: HeldLease) -> None:
    renewed_at = held.lease._renewed_at
    block_main_loop(lambda: held.lease._renewed_at != renewed_at)
    assert held.lease.held


async def test_lease_is_not_renewed_for_a_stuck_main_loop(held: HeldLease) -> None:
    block_main_loop(lambda: held.lease._asked_at is not None)
    held.ahead_s += 31.0
    block_main_loop(lambda: held.stuck() > 0)
    renewed_at = held.lease._renewed_at
    block_main_loop(lambda: held.stuck() > 2)
    assert held.lease._renewed_at == renewed_at
    held.ahead_s += 0.9 * LEASE_S
    assert not held.lease.held


async def test_main_loop_not_asked_during_a_long_renewal_is_not_stuck(
    postgres_dsn: str, held: HeldLease
) -> None:
    async with connect(postgres_dsn, schema=SCHEMA) as other, other.transaction():
        await other.execute("SELECT FROM replicas FOR UPDATE")
        await until(postgres_dsn, WAITS_FOR_A_LOCK)
        held.ahead_s += 60.0
    for _ in range(2):  # the one that waited, and one before which the main loop was asked
        renewed_at = held.lease._renewed_at
        await eventually(lambda before=renewed_at: held.lease._renewed_at != before)
    assert held.lease.held
    assert held.stuck() == 0


async def test_lease_expired_by_the_database_clock_is_not_renewed(
    postgres_dsn: str, pool: Pool, held: HeldLease
) -> None:
    await expire(pool, held.ownership.replica_id)
    await held.lease.until_lost()
    assert await fetchval(postgres_dsn, "SELECT bool_and(lease_until < now()) FROM replicas")


async def test_lease_is_lost_for_good_when_a_renewal_takes_too_long(
    postgres_dsn: str, held: HeldLease
) -> None:
    async with connect(postgres_dsn, schema=SCHEMA) as other, other.transaction():
        await other.execute("SELECT FROM replicas FOR UPDATE")
        lease_until = await other.fetchval("SELECT max(lease_until) FROM replicas")
        await until(postgres_dsn, WAITS_FOR_A_LOCK)
        held.ahead_s += 0.95 * LEASE_S  # by the clock of the database it has not expired yet
        await held.lease.until_lost()
    await until(postgres_dsn, "max(lease_until) > $1 FROM replicas", lease_until)
    assert not held.lease.held
    await held.take()
    assert held.lease.held
    await held.lives_a_lease()
    assert held.lease.others_judged_until() is not None
    assert held.lease.held


async def test_late_renewal_does_not_shorten_a_newer_lease(postgres_dsn: str, pool: Pool) -> None:
    ownership = Ownership(pool, uuid4(), 600.0)
    await ownership.take()
    async with connect(postgres_dsn, schema=SCHEMA) as session, session.transaction():
        sent_at = await session.fetchval("SELECT now()")  # as for one that waits for a lock
        await ownership.take()
        taken_until = await session.fetchval("SELECT lease_until FROM replicas")
        assert taken_until > sent_at + timedelta(seconds=600)
        await session.execute(RENEW, ownership.replica_id, 600.0)
        assert await session.fetchval("SELECT lease_until FROM replicas") == taken_until
        await session.execute(RENEW, ownership.replica_id, 900.0)
        renewed_until = await session.fetchval("SELECT lease_until FROM replicas")
        assert renewed_until == sent_at + timedelta(seconds=900)


async def test_new_replica_gives_others_time_to_come_back(pool: Pool, held: HeldLease) -> None:
    """It cannot know whether there was an outage, after which all leases have run out.

    After a connection that was lost it cannot either, and its own lease survives.
    """
    await held.lives_a_lease()
    assert held.lease.others_judged_until() is not None
    lost = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE application_name LIKE 'bos-gateway-lease%' AND datname = current_database()"
    )
    assert await pool.fetchval(lost) == 1
    await eventually(lambda: held.lease.others_judged_until() is None)
    await eventually(lambda: held.lease._steady_since < math.inf)
    await held.lives_a_lease()
    assert held.lease.others_judged_until() is not None
    assert held.lease.held


async def test_taking_lease_again_raises_epoch_of_what_is_still_ours(pool: Pool) -> None:
    ownership = Ownership(pool, uuid4(), LEASE_S)
    assert (await ownership.take())[1] == []
    ours, other = await insert_run(pool, ownership.replica_id), await insert_run(pool, uuid4())
    _, (taken,) = await ownership.take()
    assert (taken.run_id, taken.epoch, taken.reason) == (ours, 2, RESUMED)
    assert await pool.fetchval("SELECT epoch FROM runs WHERE run_id = $1", other) == 1


@pytest.mark.parametrize("statement", ["take", "release_all"])
async def test_locked_run_does_not_hold_up_others(
    postgres_dsn: str,
    pool: Pool,
    statement: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bos_gateway.ownership.owners._GRACE_S", 0.0)
    ownership = Ownership(pool, uuid4(), LEASE_S)
    await ownership.take()
    held = await insert_run(pool, ownership.replica_id)
    other = await insert_run(pool, ownership.replica_id)
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        async with session.transaction():
            await session.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", held)
            acting = asyncio.create_task(getattr(ownership, statement)())
            changed = "epoch > 1 OR replica_id IS NULL FROM runs WHERE run_id = $1"
            await until(postgres_dsn, changed, other)
            assert not await pool.fetchval(f"SELECT {changed}", held)
        await acting
    if statement == "take":
        assert await ownership.release_orphans([other]) == 1, "found again"


async def test_run_that_stays_held_is_left_to_those_who_bury_its_owner(
    postgres_dsn: str, pool: Pool
) -> None:
    ownership = Ownership(pool, uuid4(), LEASE_S)
    await ownership.take()
    run_id = await insert_run(pool, ownership.replica_id)
    async with connect(postgres_dsn, schema=SCHEMA) as session, session.transaction():
        await session.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", run_id)
        await ownership.release_all()
        await ownership.leave(exported=True)
        assert await adopt(owner_of(pool)) == []
        assert await pool.fetchval("SELECT count(*) FROM replicas WHERE lease_until < now()") == 1
    (taken,) = await adopt(owner_of(pool))
    assert taken.run_id == run_id


@pytest.mark.parametrize("judged_for_s", [10, pytest.param(-0.001, id="sent before an outage")])
async def test_the_dead_are_buried_only_while_leases_can_be_judged(
    pool: Pool, judged_for_s: float
) -> None:
    dead, alive, adopter = owner_of(pool), owner_of(pool), owner_of(pool)
    for replica in (dead, alive, adopter):
        now, _ = await replica.take()
    of_dead = await insert_run(pool, dead.replica_id)
    await insert_run(pool, alive.replica_id)
    released = await insert_run(pool, None)
    await expire(pool, dead.replica_id)
    assert (await adopter.look()).dead
    buried = await adopter.bury(now + timedelta(seconds=judged_for_s))
    adopted = {run.run_id: run.failures for run in await adopter.adopt(9)}
    judged = judged_for_s > 0
    adopted |= {run.run_id: run.failures for run in await adopter.adopt(9)}
    assert adopted == ({released: 0} | ({of_dead: 1} if judged else {}))
    assert buried == judged


async def test_lease_taken_again_during_burial_counts_no_death(
    postgres_dsn: str, pool: Pool
) -> None:
    """The first to lock the row of the lease has it; the other finds nothing to do."""
    owner, adopter = owner_of(pool), owner_of(pool)
    now, _ = await owner.take()
    await insert_run(pool, owner.replica_id)
    await expire(pool, owner.replica_id)
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        async with session.transaction():
            await session.execute(
                "UPDATE replicas SET lease_until = now() + interval '1 h' WHERE replica_id = $1",
                owner.replica_id,
            )
            assert await adopter.bury(now + timedelta(hours=1)) == 0
        assert await adopter.bury(now + timedelta(hours=1)) == 0
    assert await pool.fetchval("SELECT failures FROM runs") == 0
    assert [run.epoch for run in (await owner.take())[1]] == [2]


async def test_owner_that_retakes_its_lease_skips_released_runs(pool: Pool) -> None:
    owner, adopter = owner_of(pool), owner_of(pool)
    now, _ = await owner.take()
    await insert_run(pool, owner.replica_id)
    await expire(pool, owner.replica_id)
    assert await adopter.bury(now + timedelta(hours=1)) == 1
    assert (await owner.take())[1] == []
    assert [run.epoch for run in await owner.adopt(1)] == [2]


async def test_row_of_a_dead_replica_stays_until_no_run_names_it(pool: Pool) -> None:
    dead, adopter = owner_of(pool), owner_of(pool)
    await dead.take()
    await insert_run(pool, dead.replica_id)
    await expire(pool, dead.replica_id)
    now, _ = await adopter.take()
    left = "SELECT count(*) FROM replicas WHERE replica_id = $1"
    for there in (1, 0):
        await adopter.bury(now + timedelta(hours=1))
        assert await pool.fetchval(left, dead.replica_id) == there
    orphan = await insert_run(pool, dead.replica_id)  # accepted by it on its way out
    assert not (await adopter.look()).dead
    await adopter.release_orphans([])
    assert (await adopter.look()).dead
    assert orphan in {run.run_id for run in await adopt(adopter)}


async def test_last_runs_of_a_dead_replica_are_found_once(pool: Pool) -> None:
    dead, other, adopter = owner_of(pool), owner_of(pool), owner_of(pool)
    for replica in (dead, other):
        await replica.take()
    ended = {}
    for name, replica, ago_s in (
        ("last", dead, 90),
        ("long ago", dead, 600),
        ("of another", other, 90),
    ):
        ended[name] = await insert_run(pool, replica.replica_id)
        await pool.execute(
            "UPDATE runs SET finished_at = now() - make_interval(secs => $2) WHERE run_id = $1",
            ended[name],
            ago_s,
        )
    under_way = await insert_run(pool, dead.replica_id)
    await expire(pool, dead.replica_id)
    assert await adopter.ended_last() == []
    found, last = list[Adopted](), list[UUID]()
    for _ in range(3):
        found += await adopt(adopter)
        last += await adopter.ended_last()
    assert [run.run_id for run in found] == [under_way]
    assert last == [ended["last"]]


@pytest.mark.parametrize("exported", [True, False])
async def test_last_runs_of_a_drain_are_left_unless_exported(pool: Pool, exported: bool) -> None:
    drained, adopter = owner_of(pool), owner_of(pool)
    await drained.take()
    ended = await insert_run(pool, drained.replica_id)
    await pool.execute("UPDATE runs SET finished_at = now() WHERE run_id = $1", ended)
    under_way = await insert_run(pool, drained.replica_id)
    await drained.release_all()
    assert not (await adopter.look()).dead, "while it exports"
    await drained.leave(exported=exported)
    assert (await adopter.look()).dead is not exported
    assert [run.run_id for run in await adopt(adopter)] == [under_way]
    assert await adopter.ended_last() == ([] if exported else [ended])


async def test_look_returns_when_next_lease_of_live_replicas_expires(pool: Pool) -> None:
    ownership, other, dead = (Ownership(pool, uuid4(), LEASE_S) for _ in range(3))
    await ownership.take()
    assert await ownership.look() == Look(False, False, None, None)
    await dead.take()
    await expire(pool, dead.replica_id)
    assert await ownership.look() == Look(True, False, None, None)
    await other.take()
    expiry_s = (await ownership.look()).expiry_s
    assert expiry_s is not None
    assert 0 <= expiry_s <= LEASE_S


async def test_run_that_waits_is_due_exactly_if_there_is_input_for_it(pool: Pool) -> None:
    ownership = owner_of(pool)
    waiting, other = await insert_run(pool, None), await insert_run(pool, None)
    await pool.execute("UPDATE runs SET retry_at = 'infinity', status = 4")
    assert not (await ownership.look()).runs
    assert await ownership.adopt(9) == []
    await ownership.add_input(waiting, "cancel", LogEvent())
    assert (await ownership.look()).runs
    assert [run.run_id for run in await ownership.adopt(9)] == [waiting]
    assert not (await ownership.look()).runs, "it is owned"
    assert await pool.fetchval("SELECT replica_id FROM runs WHERE run_id = $1", other) is None


async def test_run_accepted_during_lease_renewal_goes_on(postgres_dsn: str) -> None:
    """Its commit came after the lease's, and its answer before; it is not taken over then."""
    telemetry = Telemetry.for_tests("late")
    metrics = GatewayMetrics(telemetry.registry)
    clock = DatabaseClock(telemetry, metrics)
    deps: Any = SimpleNamespace(telemetry=telemetry, metrics=metrics, clock=clock)
    run = run_of("u")
    state, feed = fold(str(run.run_id), [run.event]), RunFeed([run.event])
    held = False
    async with writers(postgres_dsn, 1) as (writer,):
        adopted = Adopted(run.run_id, 1)
        orchestrator = Orchestrator(adopted, state, feed, {}, writer, deps, lambda: held)
        assert await writer.accept(run)
        ending = asyncio.create_task(orchestrator.fail())
        await asyncio.sleep(0)
        assert not ending.done()
        held = True
        async with asyncio.timeout(60):
            await ending
    assert feed.events[-1].run_finished.response.status == RUN_STATUS_FAILED
