"""Tokens of a day, per user and for everybody: read at acceptance, settled after a run's end."""

import asyncio
from collections import Counter
from datetime import date, timedelta
from typing import Any

import asyncpg
import pytest
from gateway_harness.admission import accept, bounded, days, run_of, unsettled, writers
from gateway_harness.stored import WAITS_FOR_A_LOCK, until

from bos.common.v1 import Usage
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    OrchestratorResponse,
    ResponseMetadata,
)
from bos.runlog.v1 import LogEvent, RunFinished
from bos_chassis.auth.callers import LOCAL_USER
from bos_errors import NotFound
from bos_gateway.admission import daily_quota
from bos_gateway.admission.daily_quota import DayLimit
from bos_gateway.run_log import quota
from bos_gateway.run_log.quota import held, settle
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.retention import Scope, erase, forget_days
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter, UserLimit
from bos_postgres import connect, fetchval


def end_of(run: NewRun, tokens: int | None) -> Append:
    response = OrchestratorResponse()
    if tokens is not None:
        usage = Usage(input_tokens=tokens - 30, output_tokens=20, unreported_tokens=10)
        response.metadata.CopyFrom(ResponseMetadata(usage=usage, max_tokens=held(run.event)))
    end = LogEvent(run_finished=RunFinished(response=response))
    return Append(run.run_id, 1, 2, [end], status=RUN_STATUS_SUCCEEDED, finished=True)


@pytest.mark.parametrize(
    ("bounds", "stored"),
    [({"mine": 25_000}, [5000, 10_000, 10_000] * 4), ({"all_": 55_000}, [5000, *[10_000] * 5])],
)
async def test_day_limit_is_exact_on_a_replica_under_concurrency(
    pool: Any, bounds: dict[str, int], stored: list[int], log: LogWriter
) -> None:
    day = bounded(pool, **bounds)
    outcomes = await asyncio.gather(
        *(accept(day, log, run_of(f"user-{i % 4}", 10_000)) for i in range(60)),
        return_exceptions=True,
    )
    accepted = [outcome for outcome in outcomes if isinstance(outcome, NewRun)]
    # The last one gets what is left.
    assert sorted(held(run.event) for run in accepted) == sorted(stored)
    if "mine" in bounds:
        assert set(Counter(run.user_id for run in accepted).values()) == {3}
    assert sum(isinstance(outcome, DayLimit) for outcome in outcomes) == 60 - len(stored)
    assert await unsettled(pool) == sum(stored)


async def test_replicas_exceed_a_day_limit_by_at_most_one_each(store: str, pool: Any) -> None:
    replicas = [bounded(pool, mine=30_000) for _ in range(4)]
    async with writers(store, 4) as logs:
        outcomes = await asyncio.gather(
            *(accept(replicas[i % 4], logs[i % 4], run_of("anna", 10_000)) for i in range(60)),
            return_exceptions=True,
        )
        accepted = [o for o in outcomes if isinstance(o, NewRun)]
        assert 3 <= len(accepted) <= 4 * 3
        for day in [*replicas, bounded(pool, mine=30_000)]:  # a refusal is never from memory
            with pytest.raises(DayLimit) as caught:
                await accept(day, logs[0], run_of("anna", 10_000))
            assert caught.value.left == 30_000 - 10_000 * len(accepted)


@pytest.mark.parametrize(("left", "stored"), [(5000, 5000), (4999, None)])
async def test_a_run_gets_what_is_left_if_that_is_worth_beginning_with(
    pool: Any, left: int, stored: int | None, log: LogWriter
) -> None:
    day = bounded(pool, mine=20_000 + left)
    await accept(day, log, run_of("anna", 20_000))
    run = run_of("anna", 20_000)
    if stored is None:
        with pytest.raises(DayLimit):
            await accept(day, log, run)
    else:
        assert held((await accept(day, log, run)).event) == stored


async def test_end_of_a_run_frees_what_it_did_not_consume(pool: Any, log: LogWriter) -> None:
    first, other = bounded(pool, mine=10_000), bounded(pool, mine=10_000)
    run = await accept(first, log, run_of("anna", 10_000))
    with pytest.raises(DayLimit):
        await accept(other, log, run_of("anna", 5000))
    end = end_of(run, 3000)
    await log.append(end)
    # Also where it was accepted, and before anything is settled.
    assert held((await accept(first, log, run_of("anna", 5000))).event) == 5000
    assert await days(pool) == {"anna": 3000, "": 3000}
    with pytest.raises(DayLimit) as caught:
        await accept(other, log, run_of("anna", 5000))
    assert caught.value.left == 2000


@pytest.mark.parametrize(
    ("reported", "settles"), [(None, 10_000), (-5, 0), (2**63 - 1, 40_000), (40, 90)]
)
async def test_no_end_makes_a_sum_smaller_or_larger_than_a_sum_can_be(
    pool: Any, reported: int | None, settles: int, log: LogWriter
) -> None:
    run = await accept(bounded(pool, mine=100_000), log, run_of("anna", 10_000))
    end = end_of(run, None if reported is None else 100)
    if reported is not None:
        usage = Usage(input_tokens=reported, output_tokens=reported // 2)
        usage.unreported_tokens = 30 if reported == 40 else 0
        end.events[0].run_finished.response.metadata.usage.CopyFrom(usage)
    await log.append(end)
    assert await days(pool) == {"anna": settles, "": settles}


async def test_a_run_is_settled_once_also_by_many_at_once(
    store: str, pool: Any, log: LogWriter
) -> None:
    day = bounded(pool, mine=1_000_000)
    runs = [await accept(day, log, run_of(f"user-{i % 3}", 10_000)) for i in range(30)]
    for run in runs[:24]:
        await log.append(end_of(run, 1000))

    async def settled() -> int:
        async with connect(store, schema=SCHEMA) as session:
            return sum([await settle(session, limit=7) for _ in range(6)])

    assert sum(await asyncio.gather(*(settled() for _ in range(4)))) == 24
    assert (await days(pool))[""] == 24_000
    assert await unsettled(pool) == 60_000


async def test_interrupted_settling_is_completed_by_the_next_gateway(store: str, pool: Any) -> None:
    async with writers(store, 1) as (log,):
        run = await accept(bounded(pool, mine=10_000), log, run_of("anna", 10_000))
        await log.append(end_of(run, 3000))
    async with connect(store, schema=SCHEMA) as held_up, connect(store, schema=SCHEMA) as dying:
        # It has taken the run and waits for the sum, as it dies.
        attempt = held_up.transaction()
        await attempt.start()
        await held_up.execute("LOCK TABLE token_days IN EXCLUSIVE MODE")
        task = asyncio.create_task(settle(dying))
        await until(store, WAITS_FOR_A_LOCK)
        await held_up.execute("SELECT pg_terminate_backend($1)", dying.get_server_pid())
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await task
        await attempt.rollback()
    assert await unsettled(pool) == 3000
    assert await days(pool) == {"anna": 3000, "": 3000}


async def test_next_day_begins_with_nothing_and_run_counts_for_its_own(
    pool: Any, log: LogWriter
) -> None:
    first = await accept(bounded(pool, mine=10_000), log, run_of("anna", 10_000))
    await pool.execute("UPDATE runs SET token_day = token_day - 1")  # midnight passes
    second = await accept(bounded(pool, mine=10_000), log, run_of("anna", 10_000))
    for run, tokens in ((first, 3000), (second, 4000)):
        await log.append(end_of(run, tokens))
    await days(pool)
    rows = await pool.fetch("SELECT tokens FROM token_days WHERE user_id = 'anna' ORDER BY day")
    assert [row["tokens"] for row in rows] == [3000, 4000]


async def test_a_request_that_is_repeated_is_not_charged_twice(store: str, pool: Any) -> None:
    replicas = [bounded(pool, mine=10_000) for _ in range(2)]

    async def stored(replica: int, run: NewRun) -> bool:
        async with replicas[replica].admitted(run) as run:
            return await logs[replica].accept(run)

    async with writers(store, 2) as logs:
        racing = [run_of("berta", 1000, "racing") for _ in range(8)]
        outcomes = await asyncio.gather(*(stored(i % 2, run) for i, run in enumerate(racing)))
        assert outcomes.count(True) == 1
        await accept(replicas[0], logs[0], run_of("berta", 9000))  # all that is left
    assert not replicas[0]._locks  # nothing is kept of those who have asked
    assert await unsettled(pool) == 10_000


async def test_a_run_refused_for_its_number_holds_no_tokens(pool: Any, log: LogWriter) -> None:
    day = bounded(pool, mine=10_000)
    await accept(day, log, run_of("anna", 1000, active=1))
    with pytest.raises(UserLimit):
        await accept(day, log, run_of("anna", 9000, active=1))
    await accept(day, log, run_of("anna", 9000))
    assert await unsettled(pool) == 10_000


@pytest.mark.parametrize(
    ("user", "bounds", "counts"),
    [
        ("anna", {}, False),
        ("anna", {"mine": 10_000}, True),
        (LOCAL_USER, {"mine": 10_000}, False),  # callers without an account are not one user
        (LOCAL_USER, {"all_": 10_000}, True),
    ],
)
async def test_only_what_a_bound_holds_for_is_counted(
    pool: Any, user: str, bounds: dict[str, int], counts: bool, log: LogWriter
) -> None:
    run = await accept(bounded(pool, **bounds), log, run_of(user, 10_000))
    assert await unsettled(pool) == 10_000 * counts
    await log.append(end_of(run, 3000))
    assert await days(pool) == ({user: 3000, "": 3000} if counts else {})


async def test_what_has_ended_and_is_settled_costs_nothing(pool: Any) -> None:
    await pool.execute(
        "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, tokens, "
        "finished_at, token_day) SELECT gen_random_uuid(), 'anna', i::text, '', '', 3, 10, "
        "CASE WHEN i % 4 > 0 THEN now() END, "
        "CASE WHEN i % 4 = 0 THEN (now() AT TIME ZONE 'UTC')::date END "
        "FROM generate_series(1, 20000) AS i"
    )
    await pool.execute("UPDATE runs SET finished_at = now() WHERE request_id = '1000'")
    await pool.execute("VACUUM ANALYZE runs")
    statements = {
        daily_quota._READ_USER: ("runs_unsettled", "anna"),
        daily_quota._READ_ALL: ("runs_unsettled", ""),
        quota._SETTLE: ("runs_to_settle", None, 1000),
    }
    for sql, (index, *arguments) in statements.items():
        plan = await pool.fetch(f"EXPLAIN {sql}", *arguments)
        lines = [row[0] for row in plan]
        assert any(index in line for line in lines)
        assert not any("Seq Scan on runs" in line for line in lines)
    assert await settle(pool) == 1
    assert await days(pool) == {"anna": 10, "": 10}
    assert await unsettled(pool) == 49_990


@pytest.mark.parametrize(
    ("mine", "of_all", "reason"),
    [(5, 4, "DAY_LIMIT"), (5, 5, "USER_DAY_LIMIT"), (5, 0, "USER_DAY_LIMIT")],
)
async def test_figures_in_a_refusal_are_the_users_own(
    pool: Any, mine: int, of_all: int, reason: str
) -> None:
    await pool.execute(
        "INSERT INTO token_days SELECT (now() AT TIME ZONE 'UTC')::date, * FROM "
        "(VALUES ('anna', 95), ('', 895)) AS t"
    )
    day = bounded(pool, mine=95 + mine, all_=of_all and 895 + of_all)
    with pytest.raises(DayLimit) as caught:
        async with day.admitted(run_of("anna", 10)):
            pytest.fail("there are not enough")
    error = caught.value
    assert error.reason == reason
    assert ("95 of the 100" in error.message) == (reason == "USER_DAY_LIMIT")
    assert "89" not in error.message
    tomorrow = await pool.fetchval("SELECT ((now() AT TIME ZONE 'UTC')::date + 1)::text")
    assert error.metadata["reset_time"] == f"{tomorrow}T00:00:00Z"


async def test_what_user_consumed_on_day_of_erasing_is_erased_later(store: str, pool: Any) -> None:
    async with writers(store, 1) as (log,), connect(store, schema=SCHEMA) as session:
        run = await accept(bounded(pool, mine=10_000), log, run_of("anna", 10_000))
        await log.append(end_of(run, 4000))
        await erase(session, Scope(user_id="anna"))
        assert await days(pool) == {"anna": 4000, "": 4000}
        await session.execute("UPDATE token_days SET day = day - 1")
        assert (await erase(session, Scope(user_id="anna")))["runs"] == 0
        assert await days(pool) == {"": 4000}
        # The sum of all users belongs to no user.
        for unknown in ("anna", ""):
            with pytest.raises(NotFound):
                await erase(session, Scope(user_id=unknown))
    assert await days(pool) == {"": 4000}


async def test_maintenance_deletes_old_token_days(store: str, pool: Any, log: LogWriter) -> None:
    run = await accept(bounded(pool, mine=10_000), log, run_of("anna", 10_000))
    await log.append(end_of(run, 10_000))
    assert len(await days(pool)) == 2
    for back, left in ((40, 2), (41, 0)):
        day = "(now() AT TIME ZONE 'UTC')::date - $1::int"
        await pool.execute(f"UPDATE token_days SET day = {day}", back)
        async with connect(store, schema=SCHEMA) as session:
            await forget_days(session)
        assert len(await days(pool)) == left


# Of dry runs, which count while they plan


async def test_consumed_tokens_of_a_dry_run_replace_those_held(pool: Any) -> None:
    async with bounded(pool, mine=10_000).planning("anna") as held:
        assert held.tokens == 5000
        assert await days(pool) == {"anna": 5000, "": 5000}  # also for other gateways
        held.usage = Usage(input_tokens=300, output_tokens=20)
    assert await days(pool) == {"anna": 320, "": 320}
    with pytest.raises(asyncio.CancelledError):
        async with bounded(pool, mine=10_000).planning("anna"):
            raise asyncio.CancelledError  # what its caller does not wait for counts in full
    assert await days(pool) == {"anna": 5320, "": 5320}


async def test_dry_runs_at_once_keep_the_bound(pool: Any) -> None:
    tokens = bounded(pool, mine=21_000, all_=42_999)

    async def one(user: str) -> int | None:
        try:
            async with tokens.planning(user) as held:
                return held.tokens
        except DayLimit:
            return None

    got = await asyncio.gather(*(one(user) for user in ["anna"] * 8 + ["ben"] * 8))
    assert sorted(filter(None, got[:8])) == [1000, 5000, 5000, 5000, 5000]
    assert await days(pool) == {"anna": 21_000, "ben": 21_000, "": 42_000}
    with pytest.raises(DayLimit) as caught:  # 999 tokens are not worth asking with
        async with tokens.planning("clara"):
            pytest.fail("999 tokens are left")
    assert (caught.value.left, caught.value.reason) == (999, "DAY_LIMIT")


async def test_a_dry_run_counts_for_the_day_on_which_it_began(
    pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def yesterday(*arguments: Any) -> date:
        day: date = await fetchval(*arguments)
        await pool.execute("UPDATE token_days SET day = day - 1")
        return day - timedelta(days=1)

    monkeypatch.setattr(daily_quota, "fetchval", yesterday)
    async with bounded(pool, mine=10_000).planning("anna") as held:
        held.usage = Usage(input_tokens=300)
    assert await days(pool) == {"anna": 300, "": 300}


async def test_a_dry_run_without_an_account_has_the_total_limit_alone(pool: Any) -> None:
    async with bounded(pool, mine=1000).planning(LOCAL_USER) as held:
        assert held.tokens == 5000
    assert await days(pool) == {}
    async with bounded(pool, mine=1000, all_=9000).planning(LOCAL_USER):
        pass
    assert (await days(pool))[""] == 5000
