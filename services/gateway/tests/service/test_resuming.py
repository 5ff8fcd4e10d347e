"""Resuming own runs: they are not released meanwhile, and a lost race is no error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from gateway_harness.admission import run_of
from gateway_harness.harness import Harness
from gateway_harness.stored import until
from prometheus_client import CollectorRegistry

from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.telemetry import Telemetry
from bos_gateway.core.fold import fold
from bos_gateway.core.public_events import Cursor
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership import owners
from bos_gateway.ownership.clock import DatabaseClock
from bos_gateway.ownership.owners import Adopted, Ownership
from bos_gateway.run_log.reader import Runs
from bos_gateway.run_log.records import Append
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.statements import insert_runs
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.runs.replica import Replica
from bos_postgres import connect
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.waiting import eventually


class HeldUpWriter(LogWriter):
    """A log that is slow to write: taking up runs waits until it may go on."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.replica_id: UUID = given[1]
        self.waiting, self.go_on = asyncio.Event(), asyncio.Event()

    async def append(self, append: Append) -> None:
        self.waiting.set()
        await self.go_on.wait()
        await super().append(append)


class HeldLease:
    """A lease that was taken once, at a time when other replicas must not be judged."""

    held = False

    def taken(self, *_: object) -> None:
        self.held = True

    def others_judged_until(self) -> None:
        return None


@pytest.fixture
async def writer(postgres_dsn: str) -> AsyncIterator[HeldUpWriter]:
    metrics = GatewayMetrics(CollectorRegistry())
    telemetry = Telemetry.for_tests("writer")
    async with HeldUpWriter(postgres_dsn, uuid4(), metrics=metrics, telemetry=telemetry) as log:
        yield log


class Lines:
    """The log, by level."""

    def __init__(self) -> None:
        self.of: dict[str, list[str]] = {}

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda text, **_: self.of.setdefault(level, []).append(text)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def replica(writer: HeldUpWriter, pool: Any, lines: Lines) -> Replica:
    logged: Any = SimpleNamespace(logger=lambda _: lines)
    metrics = GatewayMetrics(CollectorRegistry())
    settings = SimpleNamespace(max_active_runs=9, max_failures=3, delta_window_s=0.0)
    clock = DatabaseClock(logged, None)
    deps: Any = SimpleNamespace(telemetry=logged, metrics=metrics, settings=settings, clock=clock)
    owned = Ownership(pool, writer.replica_id, 60.0)
    return Replica(writer, Runs(pool), owned, HeldLease(), None, deps, None)


async def accepted(writer: HeldUpWriter) -> UUID:
    """A stored run of ours that is not driven."""
    run = run_of("u")
    assert await writer.accept(run)
    return run.run_id


async def test_runs_that_are_being_taken_up_are_not_let_go_meanwhile(
    writer: HeldUpWriter,
    replica: Replica,
    pool: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owners, "_GRACE_S", 0.0)
    monkeypatch.setattr(owners, "_ORPHANS_S", 0.0)
    resumed = await accepted(writer)
    await replica.take_lease()
    await writer.waiting.wait()
    orphan = await accepted(writer)
    await replica.adopt(await replica.ownership.look())
    rows = await pool.fetch("SELECT run_id, replica_id FROM runs")
    await replica.suspend()
    assert {row["run_id"]: row["replica_id"] for row in rows} == {
        resumed: writer.replica_id,
        orphan: None,
    }
    assert await replica.ownership.release_orphans([]) == 1, "no replica takes it up any more"


async def test_run_adopted_first_by_another_replica_is_no_error(
    writer: HeldUpWriter,
    replica: Replica,
    pool: Any,
    lines: Lines,
) -> None:
    await accepted(writer)
    await replica.take_lease()
    await writer.waiting.wait()
    await pool.execute("UPDATE runs SET epoch = epoch + 1, replica_id = $1", uuid4())
    writer.go_on.set()
    await eventually(lambda: bool(lines.of))
    assert lines.of == {"info": ["run not adopted, it has another owner"]}


async def test_followers_of_a_run_stopped_before_its_loop_are_released(
    writer: HeldUpWriter, replica: Replica
) -> None:
    """The lease is lost in the very moment in which the run is taken up."""
    run_id, feeds, suspensions = await accepted(writer), list[Any](), list[asyncio.Task[None]]()

    def adopted(_: UUID) -> None:
        """Called just before the loop is started; what is scheduled here runs before it begins."""
        asyncio.get_running_loop().call_soon(lambda: feeds.append(replica.reader._feed_of(run_id)))
        suspensions.append(asyncio.create_task(replica.suspend()))

    replica.notifications = SimpleNamespace(adopted=adopted, forget=lambda _: None)
    writer.go_on.set()
    await replica.take_lease()
    await eventually(lambda: bool(suspensions))
    await asyncio.gather(*suspensions)
    assert not replica.drives(run_id)
    followed = [sequence async for sequence, _ in feeds[0].follow(Cursor())]
    assert followed == [1, 2], "accepted, adopted, and then the feed is closed"


async def test_locked_orphan_keeps_no_other_from_being_released(
    writer: HeldUpWriter, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "_GRACE_S", 0.0)
    locked, *_ = [await accepted(writer) for _ in range(3)]
    owned = Ownership(pool, writer.replica_id, 60.0)
    async with pool.acquire() as session, session.transaction():
        await session.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", locked)
        assert await owned.release_orphans([]) == 2
        assert await owned.release_orphans([]) == 0
    assert await owned.release_orphans([]) == 1


async def unowned(pool: Any, count: int) -> list[UUID]:
    runs = [run_of("u") for _ in range(count)]
    run_ids = [run.run_id for run in runs]
    async with pool.acquire() as session, session.transaction():
        await insert_runs(session, uuid4(), runs)
        await session.execute("UPDATE runs SET replica_id = NULL WHERE run_id = ANY ($1)", run_ids)
    return run_ids


async def test_runs_locked_after_adoption_do_not_block_others(
    harness: Harness, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.plan(EchoAgent("pure"))
    read, held = Runs.log, asyncio.Event()
    ended = "bool_and(finished_at IS NOT NULL) FROM runs WHERE run_id = ANY ($1)"
    async with connect(harness.dsn, schema=SCHEMA) as session, harness.gateway():

        async def then_locked(runs: Runs, run_id: UUID) -> Any:
            events = await read(runs, run_id)
            if not held.is_set():
                held.set()
                await session.execute("SELECT FROM runs FOR UPDATE")
            return events

        monkeypatch.setattr(Runs, "log", then_locked)
        async with session.transaction():
            locked = await unowned(pool, 6)  # more than are read at once
            await asyncio.wait_for(held.wait(), 60)
            await until(harness.dsn, ended, await unowned(pool, 1))
            assert await pool.fetchval("SELECT count(*) FROM runs WHERE finished_at IS NULL") == 6
        await until(harness.dsn, ended, locked)


@pytest.mark.parametrize(("epoch", "driven"), [(1, False), (2, True)])
async def test_loop_that_comes_late_takes_no_place_of_a_later_owner(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, epoch: int, driven: bool
) -> None:
    """Neither that, nor anything once the process is on its way out."""
    replicas: list[Replica] = []
    made = Replica.__init__

    def remembered(replica: Replica, *given: Any) -> None:
        made(replica, *given)
        replicas.append(replica)

    monkeypatch.setattr(Replica, "__init__", remembered)
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway() as client:
        asking = asyncio.create_task(client.ask())
        await slow.started.wait()
        (replica,) = replicas
        ((run_id, there),) = replica._driven.items()
        there.adopted = Adopted(run_id, 2)
        event = LogEvent(run_accepted=RunAccepted(user_id="u"))
        replica._drive(Adopted(run_id, epoch), fold(str(run_id), [event]), [event], {})
        assert (replica._driven[run_id] is not there) == driven
        asking.cancel()
        await replica.stop()
        replica._driven.clear()
        replica._drive(Adopted(run_id, 9), fold(str(run_id), [event]), [event], {})
        assert not replica._driven
