"""The checker of crash tests finds what it is there to find."""

import copy
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gateway_harness.crash.harness import WAITS, CrashHarness, follow_anywhere, open_crash_harness
from gateway_harness.run_contract import MISCHIEF, Seen, Verdict, check_contract
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


_BROKEN_PROMISES: dict[str, Callable[[Any], object]] = {
    "missed": lambda crash: crash.seen[0].events.pop(3),
    "seen twice": lambda crash: crash.seen[0].events.insert(3, crash.seen[0].events[3]),
    "seen but not stored": lambda crash: setattr(crash.seen[0].events[3], "sequence", 1004),
    "answered something that is not stored": lambda crash: crash.seen.append(ANOTHER),
    "cancel acknowledged": lambda crash: setattr(crash.seen[0], "cancelled", True),
    "2 effects": lambda crash: crash.once.effects.append(crash.once.effects[0]),
    "succeeded without its effect": lambda crash: crash.once.effects.clear(),
    "came 2 times": lambda crash: crash.quick.executions.append(crash.quick.executions[0]),
    "0 dispatches": lambda crash: crash.once.executions.append(
        dataclasses.replace(crash.once.executions[0], attempt=7)
    ),
}


async def test_broken_promise_is_found(crash: CrashHarness) -> None:
    seen = copy.deepcopy(crash.seen)
    effects, executions = list(crash.once.effects), list(crash.once.executions)
    quick = list(crash.quick.executions)
    for found, damage in _BROKEN_PROMISES.items():
        damage(crash)
        assert any(found in each for each in (await verdict_of(crash)).broken), found
        crash.seen[:] = copy.deepcopy(seen)
        crash.once.effects[:], crash.once.executions[:] = effects, executions
        crash.quick.executions[:] = quick
    assert not (await verdict_of(crash)).broken
    # An effect that is known by its key may be asked for twice; no attempt comes after the end.
    crash.keyed.effects.append(crash.keyed.effects[0])
    assert not (await verdict_of(crash)).broken
    first = crash.quick.executions[0]
    crash.quick.executions[0] = dataclasses.replace(first, at=first.at + 60)
    assert len((await verdict_of(crash)).late) == 1


def shown_by_an_earlier_version(planned: Any) -> None:
    planned.ClearField("stages")
    planned.plan.steps[0].ClearField("task")


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


async def test_other_version_may_lack_fields_and_differ_in_none(crash: CrashHarness) -> None:
    seen = copy.deepcopy(crash.seen)
    cases: dict[Callable[[Any], object], bool] = {
        shown_by_an_earlier_version: True,
        lambda planned: setattr(planned.plan.steps[0], "task", "or not"): False,
        lambda planned: planned.plan.steps.pop(): False,
    }
    for number, (damage, accepted) in enumerate(cases.items()):
        damage(next(e.planned for e in crash.seen[0].events if e.HasField("planned")))
        assert any("seen but not stored" in each for each in (await verdict_of(crash)).broken)
        verdict = await check_contract(crash.harness.dsn, crash.seen, crash.witnesses, agrees)
        assert (verdict.broken == []) is accepted, number
        crash.seen[:] = copy.deepcopy(seen)


ANOTHER = Seen("mine", response=OrchestratorResponse(answer="Another."))
