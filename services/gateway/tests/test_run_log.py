"""The log writer on a real PostgreSQL: atomic, fenced, repeatable."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
    RUN_STATUS_PLANNED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Approval,
)
from bos.runlog.v1 import (
    AnswerDelta,
    ApprovalRequested,
    LogEvent,
    Planned,
    RunAccepted,
    RunFinished,
    RunReleased,
)
from bos_chassis.telemetry import Telemetry
from bos_gateway import run_log
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log import SCHEMA, Append, LogWriter, LostRun, NewRun
from bos_gateway.service import MIGRATIONS, new_run_id
from bos_gateway.state import WAITING_FOR_APPROVAL
from bos_postgres import connect, migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def store(postgres_dsn: str) -> str:
    await migrate(postgres_dsn, MIGRATIONS, schema=SCHEMA)
    return postgres_dsn


@asynccontextmanager
async def writer(store: str, replica: UUID) -> AsyncIterator[LogWriter]:
    metrics = GatewayMetrics(CollectorRegistry())
    async with LogWriter(store, replica, metrics=metrics, telemetry=Telemetry.for_tests()) as log:
        yield log


def new_run(request_id: str = "") -> NewRun:
    run_id = new_run_id()
    accepted = LogEvent(run_accepted=RunAccepted(user_id="u"))
    return NewRun(run_id, "u", request_id or str(run_id), b"digest", "", "What?", accepted)


def delta(text: str) -> LogEvent:
    return LogEvent(answer_delta=AnswerDelta(attempt=1, text=text))


async def stored(store: str, run_id: UUID) -> list[tuple[int, str]]:
    async with connect(store, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT sequence, kind FROM run_events WHERE run_id = $1 ORDER BY sequence", run_id
        )
    return [tuple(row) for row in rows]


async def test_run_and_its_first_event_are_stored_together(store: str) -> None:
    run = new_run()
    async with writer(store, uuid4()) as log:
        assert await log.accept(run)
    assert await stored(store, run.run_id) == [(1, "run_accepted")]


async def test_second_run_under_a_request_id_is_not_stored(store: str) -> None:
    first, second = new_run("r"), new_run("r")
    async with writer(store, uuid4()) as log:
        outcomes = await asyncio.gather(log.accept(first), log.accept(second))
    assert sorted(outcomes) == [False, True]
    kept, dropped = (first, second) if outcomes[0] else (second, first)
    assert await stored(store, kept.run_id)
    assert not await stored(store, dropped.run_id)


async def test_appends_of_many_runs_share_statements_and_keep_their_order(store: str) -> None:
    runs = [new_run() for _ in range(20)]
    metrics = GatewayMetrics(CollectorRegistry())
    async with LogWriter(store, uuid4(), metrics=metrics, telemetry=Telemetry.for_tests()) as log:
        await asyncio.gather(*(log.accept(run) for run in runs))
        await asyncio.gather(
            *(
                log.append(Append(run.run_id, 1, 2, [delta("a"), delta("b")], durable=False))
                for run in runs
            )
        )
    for run in runs:
        assert [s for s, _ in await stored(store, run.run_id)] == [1, 2, 3]
    (batches,) = metrics.batch_events.collect()
    count = next(s.value for s in batches.samples if s.name.endswith("_count"))
    assert count < len(runs)


async def test_no_append_reads_a_whole_table_though_its_plan_was_made_on_empty_ones(
    store: str,
) -> None:
    run = new_run()
    async with writer(store, uuid4()) as log:
        await log.accept(run)
        for sequence in range(2, 22):  # PostgreSQL settles for one plan after five executions
            await log.append(Append(run.run_id, 1, sequence, [delta("x")], durable=False))
    async with connect(store) as connection:
        scans = (
            "SELECT relname::text, seq_scan FROM pg_stat_user_tables "
            "WHERE relname LIKE 'run%' OR relname = 'approvals'"
        )
        # Sessions tell what they did when they end, and a little later it can be seen.
        async with asyncio.timeout(30):
            while not await connection.fetchval(  # noqa: ASYNC110
                "SELECT n_tup_ins >= 21 FROM pg_stat_user_tables WHERE relname = 'run_events'"
            ):
                await asyncio.sleep(0.02)
        found = {row["relname"]: row["seq_scan"] for row in await connection.fetch(scans)}
    # Creating the indexes reads an empty table now and then; twenty appends would add twenty.
    assert "approvals" in found
    assert max(found.values()) < 15, found


async def owner_of(store: str, run_id: UUID) -> tuple[UUID | None, int]:
    async with connect(store, schema=SCHEMA) as connection:
        row = await connection.fetchrow(
            "SELECT replica_id, status FROM runs WHERE run_id = $1", run_id
        )
    assert row is not None
    return row["replica_id"], row["status"]


async def test_letting_go_until_somebody_decides_can_be_written_twice(store: str) -> None:
    """As when the answer to the first try was lost; but only until somebody else has the run."""
    run, replica = new_run(), uuid4()
    released = LogEvent(run_released=RunReleased(reason=WAITING_FOR_APPROVAL))
    waiting = RUN_STATUS_WAITING_FOR_APPROVAL
    append = Append(run.run_id, 1, 2, [released], durable=True, status=waiting)
    async with writer(store, replica) as log:
        await log.accept(run)
        assert (await owner_of(store, run.run_id))[0] == replica
        await log.append(append)
        assert await owner_of(store, run.run_id) == (None, waiting)
        await log.append(append)
        assert await owner_of(store, run.run_id) == (None, waiting)
        with pytest.raises(LostRun):  # another event, of a run that is nobody's
            await log.append(Append(run.run_id, 1, 3, [delta("x")], durable=True))
        async with connect(store, schema=SCHEMA) as connection:
            await connection.execute("UPDATE runs SET epoch = 2, replica_id = $1", uuid4())
        with pytest.raises(LostRun):
            await log.append(append)
    assert (await owner_of(store, run.run_id))[0] not in (None, replica)
    assert [sequence for sequence, _ in await stored(store, run.run_id)] == [1, 2]


async def test_request_is_stored_with_its_event_and_closed_with_its_run(store: str) -> None:
    run = new_run()
    approval = Approval(approval_id=str(uuid4()), run_id=str(run.run_id), step_id="a")
    asked = LogEvent(approval_requested=ApprovalRequested(approval=approval))
    status = "SELECT user_id, status FROM approvals WHERE approval_id = $1"
    async with writer(store, uuid4()) as log, connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        with pytest.raises(LostRun):
            await log.append(Append(run.run_id, 9, 2, [asked], durable=True))
        assert await connection.fetchrow(status, UUID(approval.approval_id)) is None
        await log.append(Append(run.run_id, 1, 2, [asked], durable=True))
        assert tuple(await connection.fetchrow(status, UUID(approval.approval_id))) == ("u", 1)
        end = LogEvent(run_finished=RunFinished())
        await log.append(
            Append(run.run_id, 1, 3, [end], durable=True, status=RUN_STATUS_FAILED, finished=True)
        )
        assert tuple(await connection.fetchrow(status, UUID(approval.approval_id))) == ("u", 5)


@pytest.mark.parametrize(("epoch", "refused"), [(1, False), (2, True)])
async def test_append_is_fenced_by_epoch(store: str, epoch: int, refused: bool) -> None:
    run = new_run()
    async with writer(store, uuid4()) as log:
        await log.accept(run)
        append = Append(run.run_id, epoch, 2, [delta("x")], durable=True)
        if refused:
            with pytest.raises(LostRun):
                await log.append(append)
        else:
            await log.append(append)
    assert len(await stored(store, run.run_id)) == (1 if refused else 2)


async def test_append_of_a_replica_that_is_not_the_owner_is_refused(store: str) -> None:
    run = new_run()
    async with writer(store, uuid4()) as owner, writer(store, uuid4()) as other:
        await owner.accept(run)
        with pytest.raises(LostRun):
            await other.append(Append(run.run_id, 1, 2, [delta("x")], durable=True))


async def test_lost_run_does_not_hold_up_others_in_the_same_statement(store: str) -> None:
    kept, lost = new_run(), new_run()
    async with writer(store, uuid4()) as log:
        await log.accept(kept)
        await log.accept(lost)
        async with connect(store, schema=SCHEMA) as connection:
            await connection.execute("UPDATE runs SET epoch = 2 WHERE run_id = $1", lost.run_id)
        outcomes = await asyncio.gather(
            log.append(Append(kept.run_id, 1, 2, [delta("x")], durable=False)),
            log.append(Append(lost.run_id, 1, 2, [delta("x")], durable=False)),
            return_exceptions=True,
        )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], LostRun)


async def test_append_of_an_earlier_epoch_is_refused_beside_one_of_the_present_epoch(
    store: str,
) -> None:
    run = new_run()
    async with writer(store, uuid4()) as log, connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        await connection.execute("UPDATE runs SET epoch = 2")
        end = LogEvent(run_finished=RunFinished())
        outcomes = await asyncio.gather(
            log.append(Append(run.run_id, 1, 2, [end], True, RUN_STATUS_FAILED, True)),
            log.append(Append(run.run_id, 2, 2, [delta("x")], durable=False)),
            return_exceptions=True,
        )
        finished = await connection.fetchval("SELECT finished_at IS NOT NULL FROM runs")
    assert isinstance(outcomes[0], LostRun)
    assert outcomes[1] is None
    assert await stored(store, run.run_id) == [(1, "run_accepted"), (2, "answer_delta")]
    assert not finished


async def test_repeating_an_append_is_success_and_another_one_in_its_place_is_not(
    store: str,
) -> None:
    run = new_run()
    append = Append(run.run_id, 1, 2, [delta("x")], durable=True)
    async with writer(store, uuid4()) as log:
        await log.accept(run)
        await log.append(append)
        await log.append(append)
        with pytest.raises(LostRun):
            await log.append(Append(run.run_id, 1, 2, [delta("y")], durable=True))
    assert len(await stored(store, run.run_id)) == 2


async def test_status_of_the_run_changes_with_its_events(store: str) -> None:
    run = new_run()
    async with writer(store, uuid4()) as log:
        await log.accept(run)
        planned = LogEvent(planned=Planned())
        await log.append(
            Append(run.run_id, 1, 2, [planned], durable=False, status=RUN_STATUS_PLANNED)
        )
        await log.append(
            Append(run.run_id, 1, 3, [delta("x")], durable=True, status=6, finished=True)
        )
    async with connect(store, schema=SCHEMA) as connection:
        row = await connection.fetchrow("SELECT status, finished_at FROM runs")
    assert row["status"] == 6
    assert row["finished_at"] is not None


async def test_durable_append_commits_synchronously_and_another_does_not(store: str) -> None:
    """Seen from outside by what the writer's own session reports inside the statement."""
    run = new_run()
    async with connect(store, schema=SCHEMA) as connection:
        await connection.execute(
            "CREATE TABLE seen (mode text);"
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;"
            "CREATE TRIGGER note AFTER INSERT ON run_events FOR EACH ROW EXECUTE FUNCTION note()"
        )
        async with writer(store, uuid4()) as log:
            await log.accept(run)
            await log.append(Append(run.run_id, 1, 2, [delta("x")], durable=False))
            await log.append(Append(run.run_id, 1, 3, [delta("x")], durable=True))
        rows = await connection.fetch("SELECT mode FROM seen")
    assert [row["mode"] for row in rows] == ["on", "off", "on"]


@pytest.mark.parametrize("taken_anew", [False, True])
async def test_append_without_an_answer_comes_into_the_log_before_anybody_goes_on_from_its_end(
    store: str, taken_anew: bool
) -> None:
    """Had it been committed, others could have shown it before a crash undid the commit."""
    run = new_run()
    async with writer(store, uuid4()) as log, connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        # Hold the run's row, so that the append waits inside PostgreSQL when its session dies.
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", run.run_id)
        append = asyncio.create_task(
            log.append(Append(run.run_id, 1, 2, [delta("x")], durable=False))
        )
        async with connect(store) as watcher:
            while not await watcher.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name LIKE 'bos-gateway-writer%' AND wait_event_type = 'Lock'"
            ):
                pass
        if taken_anew:
            await connection.execute("UPDATE runs SET epoch = 2")
        await transaction.commit()
        await log.restored()
        assert [s for s, _ in await stored(store, run.run_id)] == [1, 2]
        await append


async def restored_anew(log: LogWriter, connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """The writer loses its session, and writes its tail again in the next one."""
    assert len(log.tail)
    await connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name LIKE 'bos-gateway-writer%' AND datname = current_database()"
    )
    async with asyncio.timeout(30):
        while len(log.tail):
            await log.restored()


async def test_writing_again_what_was_never_lost_leaves_the_status_that_others_have_set_since(
    store: str,
) -> None:
    run = new_run()
    async with writer(store, uuid4()) as log, connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        planned = [LogEvent(planned=Planned())]
        await log.append(
            Append(run.run_id, 1, 2, planned, durable=False, status=RUN_STATUS_PLANNED)
        )
        await connection.execute("UPDATE runs SET epoch = 3, status = 5")  # to others, and back
        await restored_anew(log, connection)
        assert await connection.fetchval("SELECT status FROM runs") == 5


async def test_runs_that_were_lost_while_away_are_kept_in_mind_up_to_a_bound(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_MAX_LOST", 1)
    runs = [new_run() for _ in range(3)]
    async with writer(store, uuid4()) as log, connect(store, schema=SCHEMA) as connection:
        await asyncio.gather(*(log.accept(run) for run in runs))
        await asyncio.gather(
            *(log.append(Append(run.run_id, 1, 2, [delta("x")], durable=False)) for run in runs)
        )
        await connection.execute("UPDATE runs SET replica_id = NULL")
        await restored_anew(log, connection)
        assert len(log._lost) == 1
        for run in runs:
            with pytest.raises(LostRun):
                await log.append(Append(run.run_id, 1, 3, [delta("y")], durable=False))
        assert not log._lost


def test_run_ids_grow_with_time_and_are_version_7() -> None:
    ids = [new_run_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert {i.version for i in ids} == {7}
    assert ids[0].int >> 80 <= ids[-1].int >> 80


async def test_events_cannot_lack_a_run(store: str) -> None:
    async with connect(store, schema=SCHEMA) as connection:
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await connection.execute(
                "INSERT INTO run_events VALUES ($1, 1, $1, 1, 'x', 1, '', now())", uuid4()
            )
