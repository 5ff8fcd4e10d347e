"""The checker of crash tests finds what it is there to find."""

import copy
from collections.abc import AsyncIterator

import pytest
from gateway_harness.crash.harness import WAITS, CrashHarness, follow_anywhere, open_crash_harness
from gateway_harness.run_contract import MISCHIEF, Execution, Seen, Verdict, check_contract
from gateway_harness.versions import agrees

from bos.gateway.v1 import RUN_STATUS_FAILED, OrchestratorResponse
from bos.runlog.v1 import LogEvent
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect

pytestmark = pytest.mark.crash


@pytest.fixture
async def crash(postgres_dsn: str) -> AsyncIterator[CrashHarness]:
    """A run that ended well, and the client that saw it."""
    async with open_crash_harness(postgres_dsn) as opened:
        seen = Seen("mine")
        opened.seen.append(seen)
        opened.slow.gate.set()
        async with opened.harness.gateway() as client:
            await follow_anywhere(lambda: [client], f"Go on and {WAITS}?", seen)
        yield opened


async def verdict_of(crash: CrashHarness) -> Verdict:
    return await check_contract(crash.harness.dsn, crash.seen, crash.witnesses)


_SAVED = ("runs", "run_events")
_STORED_COLUMNS = """
SELECT string_agg(column_name, ', ') FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER'
"""
_BROKEN_STORES = {
    "DELETE FROM run_events WHERE sequence = 4": "sequences",
    "DELETE FROM run_events WHERE kind = 'run_finished'": "no end",
    "UPDATE runs SET finished_at = NULL": "no end",
    "DELETE FROM run_events WHERE sequence = 1": "accepted 0 times",
    "INSERT INTO run_events SELECT run_id, sequence + 1, gen_random_uuid(), epoch, kind, "
    "schema_version, payload, created_at FROM run_events WHERE kind = 'run_finished'": (
        "ended 2 times"
    ),
    "INSERT INTO run_events SELECT run_id, (SELECT max(sequence) + 1 FROM run_events), "
    "gen_random_uuid(), epoch, kind, schema_version, payload, created_at "
    "FROM run_events WHERE kind = 'step_dispatched' ORDER BY sequence LIMIT 1": (
        "sent again after its end"
    ),
    "DELETE FROM run_events; DELETE FROM runs": "acknowledged, not stored",
    "UPDATE runs SET request_id = 'another'": "unrequested run",
}


async def test_broken_store_is_found(crash: CrashHarness) -> None:
    async with connect(crash.harness.dsn, schema=SCHEMA) as connection:
        stored = {}
        for table in _SAVED:
            await connection.execute(f"CREATE TABLE saved_{table} AS TABLE {table}")
            stored[table] = await connection.fetchval(_STORED_COLUMNS, table)
        for sql, found in _BROKEN_STORES.items():
            await connection.execute(sql)
            assert any(found in each for each in (await verdict_of(crash)).broken), sql
            await connection.execute("DELETE FROM run_events; DELETE FROM runs")
            for table, columns in stored.items():
                await connection.execute(
                    f"INSERT INTO {table} ({columns}) SELECT {columns} FROM saved_{table}"
                )
        await connection.execute("UPDATE run_events SET payload = '\\xff' WHERE sequence = 3")
    assert any("cannot be read" in each for each in (await verdict_of(crash)).lost)


def miss_an_event(crash: CrashHarness) -> None:
    del crash.seen[0].events[3]


def see_an_event_twice(crash: CrashHarness) -> None:
    crash.seen[0].events.insert(3, crash.seen[0].events[3])


def see_what_is_not_stored(crash: CrashHarness) -> None:
    crash.seen[0].events[3].sequence += 1000


def see_another_answer(crash: CrashHarness) -> None:
    crash.seen.append(Seen("mine", response=OrchestratorResponse(answer="Another.")))


def cancel_in_vain(crash: CrashHarness) -> None:
    crash.seen[0].cancelled = True


def act_twice(crash: CrashHarness) -> None:
    crash.once.effects.append(crash.once.effects[0])


def act_never(crash: CrashHarness) -> None:
    crash.once.effects.clear()


def run_again(crash: CrashHarness) -> None:
    crash.quick.executions.append(crash.quick.executions[0])


def run_unannounced(crash: CrashHarness) -> None:
    first = crash.once.executions[0]
    crash.once.executions.append(Execution(first.step_key, 7, first.at))


_BROKEN_PROMISES = {
    miss_an_event: "missed",
    see_an_event_twice: "seen twice",
    see_what_is_not_stored: "seen but not stored",
    see_another_answer: "answered something that is not stored",
    cancel_in_vain: "cancel acknowledged",
    act_twice: "2 effects",
    act_never: "succeeded without its effect",
    run_again: "came 2 times",
    run_unannounced: "0 dispatches",
}


async def test_broken_promise_is_found(crash: CrashHarness) -> None:
    seen = copy.deepcopy(crash.seen)
    effects, executions = list(crash.once.effects), list(crash.once.executions)
    quick = list(crash.quick.executions)
    for damage, found in _BROKEN_PROMISES.items():
        damage(crash)
        assert any(found in each for each in (await verdict_of(crash)).broken), damage.__name__
        crash.seen[:] = copy.deepcopy(seen)
        crash.once.effects[:], crash.once.executions[:] = effects, executions
        crash.quick.executions[:] = quick
    assert not (await verdict_of(crash)).broken
    # An effect that is known by its key may be asked for twice; no attempt comes after the end.
    crash.keyed.effects.append(crash.keyed.effects[0])
    assert not (await verdict_of(crash)).broken
    first = crash.quick.executions[0]
    crash.quick.executions[0] = Execution(first.step_key, first.attempt, first.at + 60)
    assert len((await verdict_of(crash)).late) == 1


@pytest.mark.parametrize(("question", "found"), [("Go on?", 1), (f"A {MISCHIEF}?", 0)])
async def test_innocent_run_that_failed_is_found(
    crash: CrashHarness, question: str, found: int
) -> None:
    async with connect(crash.harness.dsn, schema=SCHEMA) as connection:
        for kind in ("run_accepted", "run_finished"):
            row = await connection.fetchrow("SELECT * FROM run_events WHERE kind = $1", kind)
            event = LogEvent.FromString(row["payload"])
            if kind == "run_accepted":
                event.run_accepted.request.question = question
            else:
                event.run_finished.response.status = RUN_STATUS_FAILED
            await connection.execute(
                "UPDATE run_events SET payload = $1 WHERE sequence = $2",
                event.SerializeToString(),
                row["sequence"],
            )
    assert len((await verdict_of(crash)).innocent_failed) == found


def shown_by_an_earlier_version(crash: CrashHarness) -> None:
    planned = next(e.planned for e in crash.seen[0].events if e.HasField("planned"))
    planned.ClearField("stages")
    planned.plan.steps[0].ClearField("task")


def shown_otherwise(crash: CrashHarness) -> None:
    planned = next(e.planned for e in crash.seen[0].events if e.HasField("planned"))
    planned.plan.steps[0].task += " or not"


def shown_half(crash: CrashHarness) -> None:
    planned = next(e.planned for e in crash.seen[0].events if e.HasField("planned"))
    del planned.plan.steps[-1]


async def test_other_version_may_lack_fields_and_differ_in_none(crash: CrashHarness) -> None:
    seen = copy.deepcopy(crash.seen)
    for damage, accepted in (
        (shown_by_an_earlier_version, True),
        (shown_otherwise, False),
        (shown_half, False),
    ):
        damage(crash)
        assert any("seen but not stored" in each for each in (await verdict_of(crash)).broken)
        verdict = await check_contract(crash.harness.dsn, crash.seen, crash.witnesses, agrees)
        assert (verdict.broken == []) is accepted, damage.__name__
        crash.seen[:] = copy.deepcopy(seen)
