"""What the log writer does about runs and tables that are locked or slow, and about a full disk."""

import asyncio
from typing import Any

import asyncpg
import pytest
from gateway_harness.admission import run_of, writers

from bos.gateway.v1 import RUN_STATUS_FAILED
from bos.runlog.v1 import LogEvent, RunAdopted
from bos_gateway.run_log import lanes
from bos_gateway.run_log import writer as run_log
from bos_gateway.run_log.lanes import LogRefused, StoreFull
from bos_gateway.run_log.records import Append
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.waiting import eventually

from .test_run_log import FINISHED, progress


async def test_locked_run_does_not_hold_up_others(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_STATEMENT_TIMEOUT_S", 0.3)
    monkeypatch.setattr(lanes, "_TIME_OUTS", 10_000)
    held, free = run_of("u"), [run_of("u") for _ in range(5)]
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        await asyncio.gather(*(log.accept(run) for run in (held, *free)))
        async with connection.transaction():
            await connection.execute("SELECT FROM runs WHERE run_id = $1 FOR UPDATE", held.run_id)
            slow = [log.submit(Append(held.run_id, 1, n, [progress()])) for n in (2, 3)]
            async with asyncio.timeout(60):
                late = run_of("u")
                assert await log.accept(late)
                await asyncio.gather(
                    *(log.append(Append(run.run_id, 1, 2, [progress()])) for run in (*free, late))
                )
            assert not any(each.done() for each in slow)
        assert await asyncio.gather(*slow) == [True, True]


async def test_locked_run_ends_take_turns_with_other_appends(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try of a locked one takes longer than it waits for the next."""
    monkeypatch.setattr(run_log, "_LOCK_TIMEOUT", "600ms")
    held, free = [run_of("u") for _ in range(3)], [run_of("u") for _ in range(40)]
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        await asyncio.gather(*(log.accept(run) for run in (*held, *free)))
        await connection.executemany(
            "INSERT INTO run_inputs (run_id, kind, payload) VALUES ($1, 'cancel', '')",
            [(run.run_id,) for run in held],
        )
        async with connection.transaction():
            await connection.execute("SELECT FROM run_inputs FOR UPDATE")
            ends = [
                log.submit(Append(run.run_id, 1, 2, [FINISHED], RUN_STATUS_FAILED, finished=True))
                for run in held
            ]
            # In one batch with them, so each is tried by itself from now on.
            beside = [log.submit(Append(run.run_id, 1, 2, [progress()])) for run in free]
            async with asyncio.timeout(60):
                assert all(await asyncio.gather(*beside))
            assert not any(each.done() for each in ends)
        assert all(await asyncio.gather(*ends))


async def test_lock_on_whole_table_is_waited_for_however_long_it_lasts(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an index that is being built without CONCURRENTLY."""
    monkeypatch.setattr(run_log, "_LOCK_TIMEOUT", "20ms")
    run, tries, insert = run_of("u"), 0, run_log.insert_events

    async def counted(*given: Any) -> Any:
        nonlocal tries
        try:
            return await insert(*given)
        except asyncpg.LockNotAvailableError:
            tries += 1
            raise

    monkeypatch.setattr(run_log, "insert_events", counted)
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        async with connection.transaction():
            await connection.execute("LOCK TABLE run_events IN SHARE MODE")
            append = log.submit(Append(run.run_id, 1, 2, [progress()]))
            await eventually(lambda: tries > 2 * lanes._TIME_OUTS, within_s=60)
            assert not append.done()
        assert await append


async def test_the_lock_of_one_user_refuses_no_question_of_another(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_LOCK_TIMEOUT", "50ms")
    blocked, other = (run_of(user, active=5) for user in "ab")
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(20261122, hashtext('a'))")
            outcomes = await asyncio.gather(
                log.accept(blocked), log.accept(other), return_exceptions=True
            )
        assert isinstance(outcomes[0], LogRefused)
        assert outcomes[1] is True


async def test_what_follows_a_run_that_was_set_apart_follows_it_there(store: str) -> None:
    """Also when the batch of both was refused for the event of another run."""
    locked, refused = run_of("u"), run_of("u")
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        await asyncio.gather(log.accept(locked), log.accept(refused))
        await connection.execute("ALTER TABLE run_events ADD CHECK (kind <> 'run_adopted')")
        async with connection.transaction():
            query = "SELECT FROM runs WHERE run_id = $1 FOR UPDATE"
            await connection.execute(query, locked.run_id)
            bad = log.submit(Append(refused.run_id, 1, 2, [LogEvent(run_adopted=RunAdopted())]))
            two, three = (log.submit(Append(locked.run_id, 1, n, [progress()])) for n in (2, 3))
            with pytest.raises(LogRefused):
                await bad
        assert await asyncio.gather(two, three) == [True, True]


async def test_a_run_whose_statements_never_come_to_an_end_is_refused(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_STATEMENT_TIMEOUT_S", 1.0)
    run = run_of("u")
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as connection:
        await log.accept(run)
        await connection.execute(
            "CREATE FUNCTION sleeps() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "PERFORM pg_sleep(60); RETURN NEW; END $$; CREATE TRIGGER sleeps BEFORE INSERT "
            "ON run_events FOR EACH ROW EXECUTE FUNCTION sleeps()"
        )
        with pytest.raises(LogRefused):
            await log.append(Append(run.run_id, 1, 2, [progress()]))


async def test_full_disk_refuses_questions_and_active_runs_wait(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, full = run_of("u"), True

    def while_full(write: Any) -> Any:
        async def written(*given: Any) -> Any:
            if full:
                raise asyncpg.DiskFullError("no space left on device")
            return await write(*given)

        return written

    async with writers(store, 1) as (log,):
        await log.accept(run)
        for name in ("insert_runs", "insert_events"):
            monkeypatch.setattr(run_log, name, while_full(getattr(run_log, name)))
        append = log.submit(Append(run.run_id, 1, 2, [progress()]))
        with pytest.raises(StoreFull):
            await log.accept(run_of("u"))
        assert not append.done()
        full = False
        assert await append
        assert await log.accept(run_of("u"))
