"""Logs of earlier versions mean what they meant; logs of newer versions are left alone."""

from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from gateway_harness.answering import refusal
from gateway_harness.golden.logs import NAMES, load, meaning, pinned
from gateway_harness.harness import Harness
from gateway_harness.stored import fetch, until

from bos.gateway.v1 import RUN_STATUS_EXECUTING, GetRunRequest, RunEvent, WatchRunRequest
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_errors import Unavailable
from bos_gateway.api import LOCAL_USER
from bos_gateway.core.decide import decide
from bos_gateway.core.fold import _APPLY, apply
from bos_gateway.core.public_events import project
from bos_gateway.core.run_state import RunState
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.statements import SCHEMA_VERSION
from bos_gateway.service import new_run_id
from bos_postgres import connect

# LogEvent with an event in field 99, which no version before it knows.
OF_A_NEWER_VERSION = b"\x9a\x06\x00"


@pytest.mark.requirement("A-09", "A-20", "P-10")
@pytest.mark.parametrize("name", NAMES)
def test_golden_log_keeps_its_meaning_and_can_resume_anywhere(name: str) -> None:
    assert meaning(load(name)) == pinned(name)
    state = RunState("0")
    for event in load(name):
        apply(state, event)
        wanted = decide(state, state.update_time)
        assert bool(wanted) is not state.finished


def test_golden_logs_hold_every_kind_of_event_that_is_written() -> None:
    found = {event.WhichOneof("event") for name in NAMES for event in load(name)}
    assert found == set(_APPLY)


async def store(
    harness: Harness, events: Sequence[bytes], *, finished: bool, versions: Sequence[int] = ()
) -> UUID:
    """Put a log into the store as a process that is gone would have left it."""
    run_id = new_run_id()
    accepted = LogEvent.FromString(events[0]).run_accepted
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        await connection.execute(
            "INSERT INTO cards VALUES ($1, $2) ON CONFLICT DO NOTHING",
            accepted.cards_digest,
            RunAccepted(cards=accepted.cards).SerializeToString(deterministic=True),
        )
        await connection.execute(
            "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, "
            "finished_at) VALUES ($1, $2, $3, '', 'What?', $4, CASE WHEN $5 THEN now() END)",
            run_id,
            LOCAL_USER,
            str(run_id),
            RUN_STATUS_EXECUTING,
            finished,
        )
        await connection.executemany(
            "INSERT INTO run_events VALUES ($1, $2, $3, 1, $4, $5, $6, now())",
            [
                (
                    run_id,
                    sequence,
                    uuid4(),
                    LogEvent.FromString(payload).WhichOneof("event") or "unheard_of",
                    versions[sequence - 1] if versions else SCHEMA_VERSION,
                    payload,
                )
                for sequence, payload in enumerate(events, 1)
            ],
        )
    return run_id


@pytest.mark.requirement("P-07")
async def test_golden_logs_in_the_store_are_shown_unchanged(harness: Harness) -> None:
    stored = {
        name: await store(harness, [e.SerializeToString() for e in load(name)], finished=True)
        for name in NAMES
    }
    async with harness.gateway() as gateway:
        for name, run_id in stored.items():
            events = load(name)
            seen = await gateway.watch(str(run_id))
            run = (await gateway.stub.GetRun(GetRunRequest(run_id=str(run_id)))).run
            request = events[0].run_accepted.request
            projected = (project(str(run_id), n, e, request) for n, e in enumerate(events, 1))
            assert seen == [public for public in projected if public is not None], name
            assert run.last_sequence == len(events), name


@pytest.mark.parametrize("newer", ["kind", "schema_version"])
async def test_run_of_a_newer_version_is_released_and_not_changed(
    harness: Harness, newer: str
) -> None:
    known = load("v1/adopted")[:5]
    assert known[-1].HasField("step_dispatched")
    payloads = [event.SerializeToString() for event in known]
    versions = [SCHEMA_VERSION] * len(known)
    if newer == "kind":
        payloads.append(OF_A_NEWER_VERSION)
        versions.append(SCHEMA_VERSION)
    else:
        payloads.append(load("v1/adopted")[5].SerializeToString())
        versions.append(SCHEMA_VERSION + 1)
    run_id = await store(harness, payloads, finished=False, versions=versions)
    async with harness.gateway() as gateway:
        # It is looked at, once, ...
        looked_at = "epoch > 1 AND replica_id IS NULL FROM runs WHERE run_id = $1"
        await until(harness.dsn, looked_at, run_id)
        # ... other runs go on, ...
        assert (await gateway.ask()).answer
        error = await refusal(gateway.stub.GetRun(GetRunRequest(run_id=str(run_id))))
        seen: list[RunEvent] = []
        call = gateway.stub.WatchRun(WatchRunRequest(run_id=str(run_id)), timeout=30)
        async for message in call:
            seen.append(message.event)
            if len(seen) == len(known):
                break
        call.cancel()
        (row,) = await fetch(
            harness.dsn,
            "SELECT finished_at, replica_id, status, (SELECT array_agg(payload ORDER BY sequence) "
            "FROM run_events AS e WHERE e.run_id = r.run_id) AS log FROM runs AS r "
            "WHERE run_id = $1",
            run_id,
        )
    assert isinstance(error, Unavailable)
    assert error.reason == "NEWER_VERSION"
    # ... and what is understood of it is shown; the run itself stays as it was.
    assert [event.sequence for event in seen] == [1, 2, 3, 4, 5]
    assert (row["finished_at"], row["replica_id"]) == (None, None)
    assert row["status"] == RUN_STATUS_EXECUTING
    assert row["log"] == payloads
