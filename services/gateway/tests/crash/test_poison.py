"""Runs that do not get on: what counts, the back-off, the quarantine, and how such a run ends."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID, uuid4

import pytest
from gateway_harness.crash.harness import replica_process
from gateway_harness.harness import SHORT_LEASE, Harness, gateway_process
from gateway_harness.ownership_rows import (
    Pool,
    adopt,
    expire,
    insert_event,
    insert_run,
    make_due,
    owner_of,
)
from gateway_harness.stored import fetchval, log_of, until
from gateway_harness.streamed import run_under_way

from bos.gateway.v1 import RUN_STATUS_FAILED, RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import LogEvent
from bos_testkit.agents import EchoAgent, SlowAgent

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("story", "failures"),
    [
        (["fails", "dies", "fails"], 3),
        pytest.param(["dies", "run_adopted", "step_dispatched", "dies", "dies"], 3, id="again"),
        pytest.param(["dies", "dies", "planned", "dies"], 1, id="gets further"),
        pytest.param(["dies", "dies", "step_finished", "dies", "dies"], 2, id="and no further"),
        pytest.param(["dies", "drains", "dies", "resumes", "dies"], 3, id="drains between deaths"),
        pytest.param(["dies", "is put off", "dies"], 2, id="put off between deaths"),
    ],
)
async def test_failures_count_until_the_run_makes_progress(
    pool: Pool, story: Sequence[str], failures: int
) -> None:
    owner = owner_of(pool)
    await owner.take()
    run_id = await insert_run(pool, owner.replica_id)
    epoch, counted = 1, 0
    for chapter in story:
        match chapter:
            case "dies":
                await expire(pool, owner.replica_id)
            case "drains":
                await owner.release_all()
            case "fails":
                await owner.release(run_id, epoch)
            case "is put off":
                await owner.release(run_id, epoch, failed=False, unreadable=True)
            case "resumes":
                _, (again,) = await owner.take()
                assert again.failures == counted
                continue
            case kind:
                await insert_event(pool, run_id, kind)
                continue
        await make_due(pool)
        owner = owner_of(pool)
        (taken,) = await adopt(owner)
        epoch, counted = taken.epoch, taken.failures
    assert counted == failures


@pytest.mark.parametrize(("failures", "back_off_s"), [(1, 2), (5, 32), (2000, 600)])
async def test_back_off_doubles_with_each_failure_up_to_ten_minutes(
    pool: Pool, failures: int, back_off_s: float
) -> None:
    owner = owner_of(pool)
    await owner.take()
    run_id = await insert_run(pool, owner.replica_id)
    await pool.execute("UPDATE runs SET failures = $1, failures_after = 1", failures - 1)
    await owner.release(run_id, 1)
    row = await pool.fetchrow("SELECT failures, retry_at - updated_at AS left FROM runs")
    assert row["failures"] == failures
    assert back_off_s <= row["left"].total_seconds() < back_off_s + 1.5
    assert await adopt(owner) == []
    await make_due(pool)
    assert [run.failures for run in await adopt(owner)] == [failures]


@pytest.mark.parametrize(("hours", "back_off_s"), [(0.05, 180), (5, 600)])
async def test_unreadable_run_backs_off_by_its_unreadable_time(
    pool: Pool, hours: float, back_off_s: float
) -> None:
    owner = owner_of(pool)
    await owner.take()
    run_id = await insert_run(pool, owner.replica_id)
    await owner.release(run_id, 1, failed=False, unreadable=True)
    await make_due(pool)
    await pool.execute(
        "UPDATE runs SET unreadable_since = now() - make_interval(secs => $1)", hours * 3600
    )
    other = owner_of(pool)
    (taken,) = await adopt(other)
    assert hours * 3600 <= taken.unreadable_s < hours * 3600 + 60
    await other.release(run_id, taken.epoch, failed=False, unreadable=True)
    left = await pool.fetchval("SELECT retry_at - updated_at FROM runs")
    assert back_off_s - 1.5 <= left.total_seconds() < back_off_s + 60


@pytest.mark.parametrize("failures", [0, 2], ids=["put off", "suspect"])
async def test_replica_leaves_an_unreadable_run_to_others_first(pool: Pool, failures: int) -> None:
    now = 0.0
    older, newer = owner_of(pool, lambda: now), owner_of(pool)
    await older.take()
    run_id = await insert_run(pool, older.replica_id)
    await pool.execute("UPDATE runs SET failures = $1, failures_after = 1", failures)
    await older.release(run_id, 1, failed=False, unreadable=True)
    await make_due(pool)
    assert await adopt(older) == [], "it is the turn of others"
    (taken,) = await adopt(newer)
    # What was read before it was released is open to all.
    await newer.release(run_id, taken.epoch, failed=False)
    await make_due(pool)
    assert [run.run_id for run in await adopt(newer)] == [run_id]
    await newer.release(run_id, taken.epoch + 1, failed=False)
    await make_due(pool)
    # There need be no others: when they had their time, it is this replica's turn again.
    now = 2.0
    assert await adopt(older) == []
    now = 6.0
    assert [run.run_id for run in await adopt(older)] == [run_id]


async def test_suspects_are_adopted_singly_after_a_second_failure(pool: Pool) -> None:
    dead, one, other = owner_of(pool), owner_of(pool), owner_of(pool)
    await dead.take()
    for failures in (0, 0, 1, 1, 1):
        run_id = await insert_run(pool, dead.replica_id)
        await pool.execute(
            "UPDATE runs SET failures = $2, failures_after = 1 WHERE run_id = $1", run_id, failures
        )
    await expire(pool, dead.replica_id)
    taken = await adopt(one)
    assert sorted(run.failures for run in taken) == [1, 1, 2]
    (suspect,) = [run for run in taken if run.failures == 2]
    assert await adopt(one, 9, suspect.run_id) == [], "one is under way"
    assert [run.failures for run in await adopt(other)] == [2]
    await insert_event(pool, suspect.run_id, "step_finished")
    assert [run.failures for run in await adopt(one, 9, suspect.run_id)] == [2], "it got further"


async def test_replicas_that_live_share_what_the_dead_left(pool: Pool) -> None:
    dead, one, other = owner_of(pool), owner_of(pool), owner_of(pool)
    for replica in (dead, one, other):
        await replica.take()
    for _ in range(7):
        await insert_run(pool, dead.replica_id)
    await expire(pool, dead.replica_id)
    assert len(await adopt(one)) == 4
    assert len(await adopt(other)) == 2
    assert len(await adopt(one)) == 1
    for _ in range(5):
        await insert_run(pool, None)
    assert len(await adopt(one, 2)) == 2, "no more than there is room for"


async def killed_by_adoption(harness: Harness, times: int) -> None:
    """Gateways that die one after the other between adopting a run and saying so in its log."""
    for _ in range(times):
        with suppress(ValueError):  # some die before they could say where they listen
            adopting = replica_process(harness, "kill adopt:after", max_failures=3)
            async with adopting as gateway:
                await gateway.died()
    assert await fetchval(harness.dsn, "SELECT failures FROM runs") == times


async def kinds_of(harness: Harness, run_id: UUID | str) -> list[str | None]:
    log = await log_of(harness.dsn, "run_id = $1", run_id)
    return [event.WhichOneof("event") for event in log]


@pytest.mark.parametrize(
    ("deaths_in_adoption", "outcome"),
    [
        pytest.param(1, RUN_STATUS_SUCCEEDED, id="two make it a suspect"),
        pytest.param(2, RUN_STATUS_FAILED, id="ended unread"),
    ],
)
async def test_run_whose_adoption_itself_kills_is_given_up(
    harness: Harness, deaths_in_adoption: int, outcome: int
) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    async with gateway_process(harness, max_failures=3) as (process, client):
        run_id = await run_under_way(client, slow)
        process.kill()
        await process.wait()
    await killed_by_adoption(harness, deaths_in_adoption)
    assert "run_adopted" not in await kinds_of(harness, run_id)
    slow.release.set()
    async with gateway_process(harness, max_failures=3) as (_, client):
        events = await client.watch(run_id)
        harness.planner.steps = []
        assert (await client.ask("And others?")).status == RUN_STATUS_SUCCEEDED
    response = events[-1].run_finished.response
    succeeded = outcome == RUN_STATUS_SUCCEEDED
    assert response.status == outcome
    assert response.error.type == ("" if succeeded else "OwnersDied")
    assert response.answer
    assert (await kinds_of(harness, run_id)).count("run_adopted") == succeeded
    assert len(slow.inputs) == 1 + succeeded


async def end_of(dsn: str) -> str:
    """The error with which the only run ended."""
    await until(dsn, "bool_and(finished_at IS NOT NULL) FROM runs")
    last = "SELECT payload FROM run_events ORDER BY sequence DESC LIMIT 1"
    event = LogEvent.FromString(await fetchval(dsn, last))
    return event.run_finished.response.error.type


async def test_run_with_an_unreadable_log_ends_at_max_failures(
    harness: Harness, pool: Pool
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    run_id = await insert_run(pool, uuid4())  # of an owner that is long gone
    await pool.execute("UPDATE run_events SET payload = '\\xff' WHERE run_id = $1", run_id)
    adopting = {**SHORT_LEASE, "max_failures": 3, "hold_off_s": 0.01}
    async with harness.gateway(**adopting) as client:
        assert await end_of(harness.dsn) == "OwnersDied"
        assert await pool.fetchval("SELECT failures FROM runs") == 3
        kinds = await pool.fetch("SELECT kind FROM run_events ORDER BY sequence")
        assert [row["kind"] for row in kinds] == ["run_accepted", "run_finished"]
        assert (await client.ask("And others?")).status == RUN_STATUS_SUCCEEDED


@pytest.mark.parametrize(
    ("minutes", "ended"), [pytest.param(61, True, id="long"), pytest.param(59, False, id="not yet")]
)
async def test_run_of_a_newer_version_waits_an_hour_without_failures(
    harness: Harness, pool: Pool, minutes: int, ended: bool
) -> None:
    await insert_run(pool, None)
    await pool.execute("UPDATE run_events SET schema_version = 99")
    since = "UPDATE runs SET failures_after = 1, unreadable_since = now() - make_interval(mins=>$1)"
    await pool.execute(since, minutes)
    async with harness.gateway(max_failures=1):
        if ended:
            assert await end_of(harness.dsn) == "RunUnreadable"
        else:
            await until(harness.dsn, "epoch > 1 AND retry_at > now() FROM runs")
        row = await pool.fetchrow("SELECT failures, finished_at FROM runs")
    assert row["failures"] == 0
    assert (row["finished_at"] is not None) == ended


async def test_refused_run_end_is_retried_alone_with_back_off(harness: Harness, pool: Pool) -> None:
    """No answer is composed again and again for a run that cannot be ended."""
    await pool.execute(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE check_violation; END $$"
    )
    await pool.execute(
        "CREATE TRIGGER no BEFORE INSERT ON run_events FOR EACH ROW "
        "WHEN (NEW.kind = 'run_finished') EXECUTE FUNCTION no()"
    )
    await harness.plan(EchoAgent("echo"))
    async with harness.gateway(max_failures=3, hold_off_s=0.05) as client:
        call = client.stream("Never ends?")
        await call.read()
        await until(harness.dsn, "failures >= 5 FROM runs")
        call.cancel()
        composed = len(harness.composer.requests)
        assert 1 <= composed <= 3
        await pool.execute("DROP TRIGGER no ON run_events")
        assert await end_of(harness.dsn) == "OwnersDied"
        assert len(harness.composer.requests) == composed
    assert await pool.fetchval("SELECT count(*) FROM run_events WHERE kind = 'run_finished'") == 1
