"""Values that are too large for the log: whole for everybody, small in the database."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from gateway_house import gateway_process, result_of
from leaving import seen_until
from prometheus_client import CollectorRegistry
from streamed import logged

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import GetRunRequest, RunEvent, RunStatus
from bos.planner.v1 import Plan
from bos.runlog.v1 import (
    ApprovalRequested,
    LogEvent,
    RunAccepted,
    StepDispatched,
    StepFinished,
    SubTask,
)
from bos_agentkit import succeeded
from bos_artefacts import Artefact, Owner, open_artefacts
from bos_chassis.errors import ConfigurationError, FailedPrecondition
from bos_chassis.telemetry import Telemetry
from bos_gateway.api import LOCAL_USER
from bos_gateway.external import (
    EXTERNAL_VERSION,
    MAX_EVENT_BYTES,
    kind_of,
    stub_of,
    substitute,
    version_of,
)
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.results import held_bytes
from bos_gateway.retention import Scope, erase
from bos_gateway.run_log import SCHEMA
from bos_gateway.runs import Runs
from bos_gateway.state import RunState, apply
from bos_gateway.upkeep import Upkeep, UpkeepPlan
from bos_gateway.values import LargeValues
from bos_postgres import connect, open_database
from bos_testkit.agents import EchoAgent, RecordingAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway_house import House

    from bos_agentkit import Agent, AgentTask

ROWS = 4000
CELL = "x" * 250
_STORED = "SELECT kind, schema_version, octet_length(payload) AS bytes FROM run_events"


class TableAgent(RecordingAgent):
    """Succeeds with a table of about 1 MB."""

    def __init__(self, name: str = "tables", rows: int = ROWS) -> None:
        super().__init__(name)
        self.rows = rows

    async def behave(self, task: AgentTask) -> AgentResult:
        result = succeeded(task, answer="a table")
        result.table.columns.add(name="n")
        result.table.columns.add(name="text")
        for number in range(self.rows):
            row = result.table.rows.add()
            row.values.add(int64_value=number)
            row.values.add(string_value=CELL)
        result.table.row_count = self.rows
        return result


async def plan_tables(house: House, then: Agent | None = None) -> None:
    """A table that is too large for the log, and perhaps somebody who needs it."""
    house.planner.steps = [step("a", "tables")]
    await house.add_agent(TableAgent())
    if then is not None:
        house.planner.steps.append(step("b", then.card.name, "", "a"))
        await house.add_agent(then)


async def stored(house: House) -> Sequence[dict[str, Any]]:
    async with connect(house.dsn, schema=SCHEMA) as session:
        return [dict(row) for row in await session.fetch(_STORED)]


def blobs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def put_away(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("no folder any more")


def asked(events: Sequence[RunEvent]) -> list[tuple[int, bytes]]:
    return [(e.sequence, e.SerializeToString(deterministic=True)) for e in logged(events)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artefacts"


async def test_dependents_composer_and_clients_get_all_rows_and_the_log_stays_small(
    house: House, folder: Path
) -> None:
    second = EchoAgent("second")
    await plan_tables(house, second)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        events = await gateway.events()
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=events[0].run_id))).run
        async with house.gateway(artefacts_url=folder.as_uri()) as elsewhere:
            assert asked(await elsewhere.watch(events[0].run_id)) == asked(events)
    handed = second.inputs[0].dependency_outputs["a"].fields["rows"].list_value.values
    assert len(handed) == ROWS
    assert handed[-1].map_value.fields["text"].string_value == CELL
    assert len(house.composer.requests[0].results[0].table.rows) == ROWS
    assert len(result_of(events, "a").table.rows) == ROWS
    assert len(run.response.data.rows) == ROWS
    rows = await stored(house)
    assert max(row["bytes"] for row in rows) <= MAX_EVENT_BYTES
    external = {row["kind"] for row in rows if row["schema_version"] == EXTERNAL_VERSION}
    assert external == {"step_finished", "run_finished"}
    # One for each result, for the second echoes the first, and one for the end.
    assert len(blobs(folder)) == 3


async def test_an_adopter_has_the_same_values_and_shows_the_same_events(
    house: House, folder: Path
) -> None:
    slow = SlowAgent("slow")
    await plan_tables(house, slow)
    url = folder.as_uri()
    async with gateway_process(house, artefacts_url=url) as (process, client):
        seen = await seen_until(client, "step_started", "b")
        await slow.started.wait()
        process.kill()
        await process.wait()
    async with gateway_process(house, artefacts_url=url) as (_, client):
        await eventually(lambda: len(slow.inputs) == 2, within_s=30)
        slow.release.set()
        events = await client.watch(seen[0].run_id)
    assert asked(events)[: len(seen)] == asked(seen)
    handed = [i.dependency_outputs["a"].SerializeToString(deterministic=True) for i in slow.inputs]
    assert handed[0] == handed[1]
    assert len(slow.inputs[1].dependency_outputs["a"].fields["rows"].list_value.values) == ROWS
    assert len(events[-1].run_finished.response.data.rows) == ROWS


@pytest.mark.parametrize("how", ["removed", "damaged"])
async def test_a_value_that_is_gone_fails_its_step_clearly_and_no_other_run(
    house: House, folder: Path, how: str
) -> None:
    slow, after = SlowAgent("slow"), EchoAgent("after")
    for agent in (TableAgent(), slow, after):
        await house.add_agent(agent)
    house.planner.steps = [
        step("a", "tables"),
        step("b", "slow"),
        step("c", "after", "use @{outputs.a.row_count}", "b"),
    ]
    url = folder.as_uri()
    async with gateway_process(house, artefacts_url=url) as (process, client):
        run_id = (await seen_until(client, "step_finished"))[0].run_id
        await slow.started.wait()
        process.kill()
        await process.wait()
    if how == "removed":
        shutil.rmtree(folder)
    else:
        (blob,) = blobs(folder)
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    async with house.gateway(artefacts_url=url) as gateway:
        await eventually(lambda: len(slow.inputs) == 2, within_s=30)
        slow.release.set()
        response = (await gateway.watch(run_id))[-1].run_finished.response
        house.planner.steps = [step("a", "after")]
        other = await gateway.ask()
    failed = {result.agent_name: result.error.type for result in response.agent_results}
    assert failed == {"tables": "ValueMissing", "slow": "", "after": "ReferenceUnresolved"}
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert other.status == RunStatus.RUN_STATUS_SUCCEEDED


async def test_the_answer_of_a_run_outlives_its_values(house: House, folder: Path) -> None:
    await plan_tables(house)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        response = await gateway.ask(trace=True)
        assert len(response.data.rows) == ROWS
        shutil.rmtree(folder)
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=response.run_id))).run
    assert (run.response.answer, run.status) == (response.answer, response.status)
    assert not run.response.HasField("data")


async def test_a_store_that_takes_nothing_costs_rows_and_not_the_run(
    house: House, folder: Path
) -> None:
    await plan_tables(house)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        put_away(folder)
        events = await gateway.events(trace=True)
        assert asked(await gateway.watch(events[0].run_id)) == asked(events)
    result = result_of(events, "a")
    assert events[-1].run_finished.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert result.table.truncated
    assert any("did not take it" in event.message for event in result.trace)
    finished = [row for row in await stored(house) if row["kind"] == "step_finished"]
    assert all(row["bytes"] <= MAX_EVENT_BYTES for row in finished)


@pytest.mark.parametrize("limit", ["no store", "per result", "per run"])
async def test_what_cannot_be_kept_is_cut_and_the_trace_says_so(
    house: House, folder: Path, limit: str
) -> None:
    await house.add_agent(TableAgent())
    house.planner.steps = [step("a", "tables"), step("b", "tables", "", "a")]
    url = folder.as_uri()
    settings: dict[str, Any] = {
        "no store": {},
        "per result": {"artefacts_url": url, "max_result_bytes": 500_000},
        "per run": {"artefacts_url": url, "max_run_result_bytes": 1_200_000},
    }[limit]
    async with house.gateway(**settings) as gateway:
        events = await gateway.events(trace=True)
    first, second = result_of(events, "a"), result_of(events, "b")
    assert first.table.truncated is (limit != "per run")
    assert second.table.truncated
    assert second.ByteSize() <= (500_000 if limit == "per result" else 262_144)
    told = [t.message for e in events for t in e.step_progress.events if "was cut" in t.message]
    assert len(told) == (1 if limit == "per run" else 2)


async def test_a_replica_without_the_store_leaves_the_run_to_one_that_has_it(
    house: House, folder: Path
) -> None:
    slow = SlowAgent("slow")
    await plan_tables(house, slow)
    async with gateway_process(house, artefacts_url=folder.as_uri()) as (process, client):
        call = client.stream()
        run_id = (await call.read()).event.run_id
        call.cancel()
        await slow.started.wait()
        process.kill()
        await process.wait()
    async with house.gateway():
        await released(house, run_id)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        await eventually(lambda: len(slow.inputs) == 2, within_s=30)
        slow.release.set()
        response = (await gateway.watch(run_id))[-1].run_finished.response
    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED


async def released(house: House, run_id: str) -> None:
    """Return once an adopter has taken the run (its epoch grew) and let it go again."""
    free = "SELECT epoch > 1 AND replica_id IS NULL FROM runs WHERE run_id = $1"
    async with connect(house.dsn, schema=SCHEMA) as session, asyncio.timeout(30):
        while not await session.fetchval(free, UUID(run_id)):
            pass


async def test_erasing_leaves_no_value_and_no_orphan(house: House, folder: Path) -> None:
    await plan_tables(house)
    values = LargeValues(open_artefacts(folder.as_uri()))
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        gone, kept = await gateway.ask(), await gateway.ask()
    owner = Owner(LOCAL_USER, UUID(gone.run_id))
    await open_artefacts(folder.as_uri()).put(owner, b"put, and then the gateway died")
    async with connect(house.dsn, schema=SCHEMA) as session:
        with pytest.raises(FailedPrecondition, match="BOS_GATEWAY_ARTEFACTS_URL"):
            await erase(session, Scope(run_id=owner.run_id))
        erased = await erase(session, Scope(run_id=owner.run_id), values)
    assert (erased.runs, erased.values) == (1, 3)
    assert {path.parent.name for path in blobs(folder)} == {kept.run_id}


async def test_the_command_erases_values_too(house: House, folder: Path) -> None:
    await plan_tables(house)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        await gateway.ask()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bos_gateway.retention", "erase", "--user", LOCAL_USER),
        env={
            **os.environ,
            "BOS_GATEWAY_STORE_URL": house.dsn,
            "BOS_GATEWAY_ARTEFACTS_URL": folder.as_uri(),
        },
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"2 value(s)" in out
    assert blobs(folder) == []


async def test_expiry_takes_values_along_and_waits_for_a_store_that_is_not_known(
    house: House, folder: Path
) -> None:
    await plan_tables(house)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        await gateway.ask()
    plan = UpkeepPlan(keep_s=0.0)
    metrics = GatewayMetrics(CollectorRegistry())
    async with open_database(house.dsn, schema=SCHEMA) as pool:
        await Upkeep(pool, plan, metrics).round()
        assert await pool.fetchval("SELECT count(*) FROM runs") == 1
        await Upkeep(pool, plan, metrics, LargeValues(open_artefacts(folder.as_uri()))).round()
        assert await pool.fetchval("SELECT count(*) FROM runs") == 0
    assert blobs(folder) == []


async def test_a_reader_without_the_store_sees_the_stub(house: House, folder: Path) -> None:
    await plan_tables(house)
    async with house.gateway(artefacts_url=folder.as_uri()) as gateway:
        response = await gateway.ask()
    async with open_database(house.dsn, schema=SCHEMA) as pool:
        events = await Runs(pool).log(UUID(response.run_id))
    stubs = [event.external_event for event in events if event.HasField("external_event")]
    assert [stub.kind for stub in stubs] == ["step_finished", "run_finished"]
    assert all(len(stub.digest) == 64 and stub.size_bytes > MAX_EVENT_BYTES for stub in stubs)


async def test_only_what_is_too_large_is_moved(folder: Path) -> None:
    values = LargeValues(open_artefacts(folder.as_uri()), Telemetry.for_tests("values"))
    owner = Owner("u", uuid4())

    def event(size: int) -> LogEvent:
        empty = LogEvent(step_finished=StepFinished(step_id="a", result=AgentResult(answer="x")))
        padding = size - empty.ByteSize() + 1
        result = AgentResult(answer="x" * padding)
        found = LogEvent(step_finished=StepFinished(step_id="a", result=result))
        result.answer = result.answer[: padding - (found.ByteSize() - size)]
        return LogEvent(step_finished=StepFinished(step_id="a", result=result))

    fits, large = event(MAX_EVENT_BYTES), event(MAX_EVENT_BYTES + 1)
    assert (fits.ByteSize(), large.ByteSize()) == (MAX_EVENT_BYTES, MAX_EVENT_BYTES + 1)
    whole, rows = await values.moved_out(owner, [fits, large])
    assert whole == [fits, large]
    assert rows[0] is fits
    assert (kind_of(rows[1]), version_of(rows[1])) == ("step_finished", EXTERNAL_VERSION)
    assert [await values.whole(owner, row) for row in rows] == whole


def test_a_folder_is_for_its_owner_alone(folder: Path) -> None:
    open_artefacts(folder.as_uri())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "event",
    [
        LogEvent(
            step_dispatched=StepDispatched(revision=2, sub_task=SubTask(task="x" * MAX_EVENT_BYTES))
        ),
        LogEvent(
            approval_requested=ApprovalRequested(
                revision=2, result=AgentResult(answer="x" * MAX_EVENT_BYTES)
            )
        ),
    ],
    ids=["dispatch", "request"],
)
def test_a_run_whose_inputs_are_gone_ends_as_if_its_plan_had_failed(event: LogEvent) -> None:
    stub = stub_of(event, Artefact("0" * 64, event.ByteSize()))
    assert stub.ByteSize() < 1000
    state = RunState("run", accepted=RunAccepted(), plan=Plan(), revision=2)
    apply(state, substitute(stub))
    assert state.plan_failure is not None
    failed = substitute(stub).plan_failed
    assert (failed.revision, failed.error.type) == (2, "ValueMissing")


def test_nothing_is_held_by_a_run_that_has_not_begun() -> None:
    assert held_bytes(RunState("r")) == 0


async def test_a_url_of_no_store_is_refused_at_the_start(house: House) -> None:
    with pytest.raises(ConfigurationError, match="file:///folder"):
        async with house.gateway(artefacts_url="/folder"):
            pass
