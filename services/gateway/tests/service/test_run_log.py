"""The log writer on a real PostgreSQL: atomic, fenced, repeatable."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from gateway_harness.admission import run_of, writers
from gateway_harness.stored import fetch, fetchval, log_of, until
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import (
    RUN_STATUS_FAILED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Approval,
)
from bos.runlog.v1 import (
    ApprovalRequested,
    LogEvent,
    RunAdopted,
    RunFinished,
    RunReleased,
    StepProgressed,
)
from bos_chassis.telemetry import Telemetry
from bos_errors import Unavailable
from bos_gateway.core.fold import WAITING_FOR_APPROVAL
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.lanes import LogRefused
from bos_gateway.run_log.records import Append
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter, LostRun
from bos_gateway.service import new_run_id
from bos_postgres import connect


def progress(text: str = "x") -> LogEvent:
    return LogEvent(step_progressed=StepProgressed(step_id=text))


FINISHED = LogEvent(run_finished=RunFinished())


async def stored(store: str, run_id: UUID) -> list[int]:
    rows = "SELECT sequence FROM run_events WHERE run_id = $1 ORDER BY sequence"
    return [row["sequence"] for row in await fetch(store, rows, run_id)]


async def test_appends_of_many_runs_share_statements_in_order(store: str) -> None:
    runs = [run_of("u") for _ in range(20)]
    metrics = GatewayMetrics(CollectorRegistry())
    async with LogWriter(store, uuid4(), metrics=metrics, telemetry=Telemetry.for_tests()) as log:
        await asyncio.gather(*(log.accept(run) for run in runs))
        await asyncio.gather(
            *(log.append(Append(run.run_id, 1, 2, [progress("a"), progress("b")])) for run in runs)
        )
    for run in runs:
        assert await stored(store, run.run_id) == [1, 2, 3]
    (batches,) = metrics.batch_events.collect()
    count = next(s.value for s in batches.samples if s.name.endswith("_count"))
    assert count < len(runs)


async def test_append_plans_made_on_empty_tables_scan_none(store: str) -> None:
    run = run_of("u")
    async with writers(store, 1) as (log,):
        await log.accept(run)
        for sequence in range(2, 22):  # PostgreSQL settles for one plan after five executions
            await log.append(Append(run.run_id, 1, sequence, [progress()]))
    # Sessions report what they did when they end, and a little later it can be seen.
    await until(store, "n_tup_ins >= 21 FROM pg_stat_user_tables WHERE relname = 'run_events'")
    scans = (
        "SELECT relname::text, seq_scan FROM pg_stat_user_tables "
        "WHERE relname LIKE 'run%' OR relname = 'approvals'"
    )
    found = dict(map(tuple, await fetch(store, scans)))
    # Creating the indexes reads an empty table now and then; twenty appends would add twenty.
    assert "approvals" in found
    assert max(found.values()) < 15, found


async def test_release_until_a_decision_can_be_written_twice(store: str, log: LogWriter) -> None:
    """As when the answer to the first try was lost; nothing changes hands by it a second time."""
    run = run_of("u")
    released = LogEvent(run_released=RunReleased(reason=WAITING_FOR_APPROVAL))
    waiting = RUN_STATUS_WAITING_FOR_APPROVAL
    append = Append(run.run_id, 1, 2, [released], status=waiting)

    async def owned() -> tuple[Any, int]:
        return tuple((await fetch(store, "SELECT replica_id, status FROM runs"))[0])

    await log.accept(run)
    replica, _ = await owned()
    for _ in range(2):
        await log.append(append)
        assert await owned() == (None, waiting)
    with pytest.raises(LostRun):  # another event, of an unowned run
        await log.append(Append(run.run_id, 1, 3, [progress()]))
    await fetch(store, "UPDATE runs SET epoch = 2, replica_id = $1", uuid4())
    await log.append(append)  # it is in the log, regardless of the present owner
    assert (await owned())[0] not in (None, replica)
    assert await stored(store, run.run_id) == [1, 2]


async def test_approval_is_stored_with_its_event_and_ends_with_its_run(
    store: str, log: LogWriter
) -> None:
    run = run_of("u")
    approval = Approval(approval_id=str(uuid4()), run_id=str(run.run_id), step_id="a")
    asked = LogEvent(approval_requested=ApprovalRequested(approval=approval))

    async def approvals() -> list[tuple[str, int]]:
        return [tuple(row) for row in await fetch(store, "SELECT user_id, status FROM approvals")]

    await log.accept(run)
    with pytest.raises(LostRun):
        await log.append(Append(run.run_id, 9, 2, [asked]))
    assert await approvals() == []
    await log.append(Append(run.run_id, 1, 2, [asked]))
    assert await approvals() == [("u", 1)]
    await log.append(Append(run.run_id, 1, 3, [FINISHED], RUN_STATUS_FAILED, finished=True))
    assert await approvals() == [("u", 5)]


async def test_append_that_does_not_follow_the_log_is_refused(store: str) -> None:
    x, y = [progress("x")], [progress("y")]
    async with writers(store, 2) as (log, other):
        runs = [run_of("u") for _ in range(5)]
        await asyncio.gather(*(log.accept(run) for run in runs))
        epoch, owner, gap, same, ended = (run.run_id for run in runs)
        end = Append(ended, 1, 2, [FINISHED], RUN_STATUS_FAILED, finished=True)
        for stored_twice in (Append(same, 1, 2, x), end):
            await log.append(stored_twice)
            await log.append(stored_twice)
        for by, append in (
            (log, Append(epoch, 2, 2, x)),
            (other, Append(owner, 1, 2, x)),
            (log, Append(gap, 1, 3, x)),
            (log, Append(same, 1, 2, y)),
            (
                log,
                Append(
                    ended, 1, 3, [LogEvent(run_finished=RunFinished())], RUN_STATUS_FAILED, True
                ),
            ),
        ):
            with pytest.raises(LostRun):
                await by.append(append)
        await log.append(Append(gap, 1, 2, x))
    counts = [len(await stored(store, run.run_id)) for run in runs]
    assert counts == [1, 1, 2, 2, 2]


async def test_append_of_an_earlier_epoch_is_refused_in_a_shared_batch(
    store: str, log: LogWriter
) -> None:
    run = run_of("u")
    await log.accept(run)
    await fetch(store, "UPDATE runs SET epoch = 2")
    outcomes = await asyncio.gather(
        log.append(Append(run.run_id, 1, 2, [FINISHED], RUN_STATUS_FAILED, True)),
        log.append(Append(run.run_id, 2, 2, [progress()])),
        return_exceptions=True,
    )
    ended = await fetchval(store, "SELECT finished_at IS NOT NULL FROM runs")
    assert isinstance(outcomes[0], LostRun)
    assert outcomes[1] is None
    kinds = [event.WhichOneof("event") for event in await log_of(store)]
    assert kinds == ["run_accepted", "step_progressed"]
    assert not ended


async def test_every_commit_waits_for_the_disk(store: str) -> None:
    """Seen from outside by what the writer's own sessions report inside the statements."""
    run = run_of("u")
    async with connect(store, schema=SCHEMA) as connection:
        await connection.execute(
            "CREATE TABLE seen (mode text);"
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;"
            "CREATE TRIGGER note AFTER INSERT ON run_events FOR EACH ROW EXECUTE FUNCTION note()"
        )
        async with writers(store, 1) as (log,):
            await log.accept(run)
            await log.append(Append(run.run_id, 1, 2, [progress()]))
        rows = await connection.fetch("SELECT mode FROM seen")
    assert [row["mode"] for row in rows] == ["on", "on"]


@pytest.mark.requirement("A-10")
async def test_concurrent_appends_of_a_run_keep_their_order(store: str, log: LogWriter) -> None:
    run = run_of("u")
    await log.accept(run)
    parts = [Append(run.run_id, 1, n, [progress(str(n))]) for n in range(2, 602)]
    await asyncio.gather(*map(log.submit, parts))
    assert await stored(store, run.run_id) == list(range(1, 602))


async def test_refused_append_affects_what_follows_it_and_no_other_run(
    store: str, log: LogWriter
) -> None:
    run, kept = run_of("u"), run_of("u")
    await asyncio.gather(log.accept(run), log.accept(kept))
    await fetch(store, "ALTER TABLE run_events ADD CHECK (kind <> 'run_adopted')")
    before, refused, behind, beside = await asyncio.gather(
        log.submit(Append(run.run_id, 1, 2, [progress()])),
        log.submit(Append(run.run_id, 1, 3, [LogEvent(run_adopted=RunAdopted())])),
        log.submit(Append(run.run_id, 1, 4, [progress()])),
        log.submit(Append(kept.run_id, 1, 2, [progress()])),
        return_exceptions=True,
    )
    assert (before, beside) == (True, True)
    assert isinstance(refused, LogRefused)
    assert isinstance(behind, LostRun)
    assert await stored(store, run.run_id) == [1, 2]


async def test_unwritable_event_fails_before_it_joins_a_batch() -> None:
    event = progress()
    event.create_time.seconds = 2**62
    with pytest.raises((ValueError, OverflowError)):
        Append(uuid4(), 1, 2, [event])


async def test_pending_appends_fail_when_the_writer_ends(store: str) -> None:
    run = run_of("u")
    async with connect(store, schema=SCHEMA) as connection, writers(store, 1) as (log,):
        await log.accept(run)
        async with connection.transaction():
            await connection.execute("SELECT FROM runs FOR UPDATE")
            locked = log.submit(Append(run.run_id, 1, 2, [progress()]))
            # Until it was tried: it does not wait for the row, but is tried again.
            await until(
                store,
                "count(*) > 0 FROM pg_stat_activity WHERE query LIKE '%SKIP LOCKED%' "
                "AND state <> 'active' AND datname = current_database() "
                "AND application_name LIKE 'bos-gateway-writer%'",
            )
            under_way = asyncio.ensure_future(log.accept(run_of("u")))
            await asyncio.sleep(0)
            await log.__aexit__(None, None, None)
    outcomes = await asyncio.gather(locked, under_way, return_exceptions=True)
    assert isinstance(outcomes[0], Unavailable)
    assert outcomes[1] is True or isinstance(outcomes[1], Unavailable)
    with pytest.raises(Unavailable):
        await log.append(Append(run.run_id, 1, 2, [progress()]))


@pytest.mark.parametrize("taken_anew", [False, True])
async def test_append_with_a_lost_reply_is_repeated_and_stored_once(
    store: str, taken_anew: bool
) -> None:
    run = run_of("u")
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        # A trigger holds the append, so that it waits inside PostgreSQL when its session dies.
        await connection.execute(
            "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$; CREATE TRIGGER waits "
            "BEFORE INSERT ON run_events FOR EACH ROW EXECUTE FUNCTION waits()"
        )
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(7)")
            append = log.submit(Append(run.run_id, 1, 2, [progress()]))
            await until(
                store,
                "count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity "
                "WHERE application_name LIKE 'bos-gateway-writer%' "
                "AND datname = current_database() AND wait_event_type = 'Lock'",
            )
            if taken_anew:
                async with asyncio.timeout(60):
                    await fetch(store, "UPDATE runs SET epoch = 2")
        if taken_anew:
            with pytest.raises(LostRun):
                await append
        else:
            assert await append
    assert await stored(store, run.run_id) == ([1] if taken_anew else [1, 2])


@pytest.mark.requirement("A-20")
def test_run_ids_grow_with_time_and_are_version_7() -> None:
    ids = [new_run_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert {i.version for i in ids} == {7}
    assert ids[0].int >> 80 <= ids[-1].int >> 80
