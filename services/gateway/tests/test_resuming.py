"""Taking up again what is ours: nobody lets go of it meanwhile, and a lost race is no defect."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID, uuid4

import pytest
from prometheus_client import CollectorRegistry

from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.telemetry import Telemetry
from bos_gateway import strays
from bos_gateway.clock import DatabaseClock
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership import Ownership
from bos_gateway.replica import Replica
from bos_gateway.run_log import SCHEMA, Append, LogWriter, NewRun
from bos_gateway.runs import Runs
from bos_gateway.service import MIGRATIONS, new_run_id
from bos_postgres import migrate, open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import asyncpg


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
    """A lease that was taken once, at a time when nobody else may be judged."""

    held = False

    def taken(self, *_: object) -> None:
        self.held = True

    def others_judged_until(self) -> None:
        return None


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    await migrate(postgres_dsn, MIGRATIONS, schema=SCHEMA)
    async with open_database(postgres_dsn, schema=SCHEMA, max_size=4) as opened:
        yield opened


@pytest.fixture
async def writer(
    postgres_dsn: str, pool: asyncpg.Pool[asyncpg.Record]
) -> AsyncIterator[HeldUpWriter]:
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
def replica(writer: HeldUpWriter, pool: asyncpg.Pool[asyncpg.Record], lines: Lines) -> Replica:
    logged = SimpleNamespace(logger=lambda _: lines)
    collaborators = SimpleNamespace(
        telemetry=logged,
        settings=SimpleNamespace(max_active_runs=9, max_failures=3),
        clock=DatabaseClock(cast("Any", logged), cast("Any", None)),
    )
    return Replica(
        writer,
        Runs(pool),
        Ownership(pool, writer.replica_id, 60.0),
        cast("Any", HeldLease()),
        cast("Any", None),
        cast("Any", collaborators),
        cast("Any", None),
        new_run_id,
    )


async def accepted(writer: HeldUpWriter) -> UUID:
    """A run of ours that is stored and that nobody drives."""
    run_id = new_run_id()
    event = LogEvent(run_accepted=RunAccepted(user_id="u"))
    assert await writer.accept(NewRun(run_id, "u", str(run_id), b"", "", "?", event))
    return run_id


async def test_runs_that_are_being_taken_up_are_not_let_go_meanwhile(
    writer: HeldUpWriter,
    replica: Replica,
    pool: asyncpg.Pool[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strays, "_GRACE_S", 0.0)
    monkeypatch.setattr(strays, "_LOOK_S", 0.0)
    resumed = await accepted(writer)
    taking = asyncio.create_task(replica.take_lease())
    await writer.waiting.wait()
    stray = await accepted(writer)
    await replica.adopt(await replica.look())
    rows = await pool.fetch("SELECT run_id, replica_id FROM runs")
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    assert {row["run_id"]: row["replica_id"] for row in rows} == {
        resumed: writer.replica_id,
        stray: None,
    }
    assert await replica._strays.let_go([]) == 1, "nobody takes it up any more"


async def test_run_that_somebody_else_took_first_is_no_error(
    writer: HeldUpWriter,
    replica: Replica,
    pool: asyncpg.Pool[asyncpg.Record],
    lines: Lines,
) -> None:
    await accepted(writer)
    taking = asyncio.create_task(replica.take_lease())
    await writer.waiting.wait()
    await pool.execute("UPDATE runs SET epoch = epoch + 1, replica_id = $1", uuid4())
    writer.go_on.set()
    await taking
    assert lines.of == {"info": ["run not taken up, it has another owner"]}
