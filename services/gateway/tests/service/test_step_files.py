"""Files of steps: kept with the run, listed, sent to later steps within bounds, never logged."""

import asyncio
import hashlib
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from gateway_harness.answering import refusal
from gateway_harness.crash.harness import PROGRAM
from gateway_harness.harness import Client, Harness, erased, gateway_process, result_of
from gateway_harness.stored import log_of
from prometheus_client import CollectorRegistry

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos.common.v1 import Artefact as Reference
from bos.common.v1 import Chart, TraceEventType
from bos.gateway.v1 import DownloadFileRequest
from bos_agentkit import Agent, AgentTask, agent_card, failed, succeeded
from bos_artefacts import Owner, open_artefacts
from bos_errors import FailedPrecondition
from bos_gateway.api import LOCAL_USER
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.retention import Scope, erase
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import FileAgent, RecordingAgent
from bos_testkit.plans import step

PICTURE = bytes(range(256)) * 10_000


ROWS = b"a,b\n1,2\n"


FILES = {"chart.png": ("image/png", PICTURE), "rows.csv": ("text/csv", ROWS)}
PICTURE_DIGEST = hashlib.sha256(PICTURE).hexdigest()


SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED


@pytest.fixture
def url(folder: Path) -> str:
    return folder.as_uri()


def blobs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def put_away(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("no folder any more")


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


async def fetched(client: Client, run_id: str, digest: str) -> tuple[Any, bytes]:
    call = client.call(DownloadFileRequest(run_id=run_id, digest=digest))
    parts = [part async for part in call]
    return parts[0].file, b"".join(part.content for part in parts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artefacts"


async def test_files_are_listed_in_the_result_and_can_be_fetched(
    harness: Harness, url: str
) -> None:
    await harness.plan(FileAgent("files", FILES))
    async with harness.gateway(artefacts_url=url) as gateway:
        events = await gateway.events()
        run_id = events[0].run_id
        result = result_of(events, "a")
        assert [(f.name, f.media_type, f.size_bytes) for f in result.files] == [
            ("chart.png", "image/png", len(PICTURE)),
            ("rows.csv", "text/csv", len(ROWS)),
        ]
        about, content = await fetched(gateway, run_id, result.files[0].digest)
        assert (about, content) == (result.files[0], PICTURE)
        # Also without the prefix, and from another gateway, which has the run from its log alone.
        async with harness.gateway(artefacts_url=url) as elsewhere:
            assert (await fetched(elsewhere, run_id, PICTURE_DIGEST))[1] == PICTURE
    assert harness.composer.requests[0].results[0].files == result.files


async def test_only_files_of_the_run_that_are_still_there_are_served(
    harness: Harness, folder: Path, url: str
) -> None:
    await harness.plan(FileAgent("files", FILES))
    async with harness.gateway(artefacts_url=url) as gateway:
        run_id = (await gateway.ask()).run_id
        # A blob of the same run that is no file of it.
        inside = hashlib.sha256(b"internal").hexdigest()
        blobs(folder)[0].with_name(inside).write_bytes(b"internal")
        assert (await refusal(fetched(gateway, run_id, inside))).reason == "FILE_NOT_FOUND"
        above = await refusal(fetched(gateway, run_id, "../" * 20))
        assert above.reason == "INVALID_ARGUMENT"
        for blob in blobs(folder):
            blob.unlink()
        assert (await refusal(fetched(gateway, run_id, PICTURE_DIGEST))).reason == "FILE_GONE"


@pytest.mark.parametrize("store", ["missing", "refusing"])
async def test_step_succeeds_without_a_store_and_names_lost_files(
    harness: Harness, folder: Path, store: str
) -> None:
    await harness.plan(FileAgent("files", FILES), DrawingAgent())
    url = folder.as_uri() if store == "refusing" else None
    async with harness.gateway(artefacts_url=url) as gateway:
        if store == "refusing":
            put_away(folder)
        events = await gateway.events()
    result = result_of(events, "a")
    assert result.status == SUCCEEDED
    assert list(result.files) == []
    drawn, _ = result_of(events, "b").charts
    assert (drawn.title, len(drawn.images), drawn.HasField("specification")) == ("Drawn", 0, False)
    said = [
        traced.message.partition(" was not kept: ")[0]
        for event in events
        for traced in event.step_progress.events
        if event.step_progress.step_id == "a"
        and traced.type == TraceEventType.TRACE_EVENT_TYPE_MESSAGE
    ]
    assert said == ["The file chart.png", "The file rows.csv"]


async def test_command_erases_files_too_also_those_that_no_log_names(
    harness: Harness, folder: Path, url: str
) -> None:
    await harness.plan(FileAgent("files", FILES))
    async with harness.gateway(artefacts_url=url) as gateway:
        gone, kept = (await gateway.ask()).run_id, (await gateway.ask()).run_id
    mine = Owner(LOCAL_USER, UUID(gone))
    await open_artefacts(url).put(mine, b"put, and then the gateway died")
    status, out, _ = await erased(harness, "--run", gone, BOS_GATEWAY_ARTEFACTS_URL=url)
    assert status == 0
    assert "3 file(s)" in out
    assert {path.parent.name for path in blobs(folder)} == {kept}


async def test_expiry_deletes_files_and_waits_for_an_unknown_store(
    harness: Harness, folder: Path, url: str, pool: Any
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    async with harness.gateway(artefacts_url=url) as gateway:
        await gateway.ask()
        harness.planner.steps = [step("a", "files")]
        with_files = (await gateway.ask()).run_id
    metrics = GatewayMetrics(CollectorRegistry())
    await Maintenance(pool, 0.0, metrics).round()
    async with connect(harness.dsn, schema=SCHEMA) as session:
        with pytest.raises(FailedPrecondition, match="BOS_GATEWAY_ARTEFACTS_URL"):
            await erase(session, Scope(run_id=UUID(with_files)))
    left = await pool.fetch("SELECT run_id FROM runs")
    assert [str(row["run_id"]) for row in left] == [with_files]
    await Maintenance(pool, 0.0, metrics, RunFiles(open_artefacts(url))).round()
    assert await pool.fetchval("SELECT count(*) FROM runs") == 0
    assert blobs(folder) == []


async def test_a_run_that_has_ended_gets_no_more_files(
    harness: Harness, folder: Path, url: str, pool: Any
) -> None:
    async with harness.gateway() as gateway:
        run_id = UUID((await gateway.ask()).run_id)
    files = RunFiles(open_artefacts(url), pool)
    with pytest.raises(FailedPrecondition):
        await files.keep(Owner(LOCAL_USER, run_id), b"too late")
    assert blobs(folder) == []
    await pool.execute("UPDATE runs SET finished_at = NULL")
    await files.keep(Owner(LOCAL_USER, run_id), b"in time")
    assert await pool.fetchval("SELECT has_files FROM runs")
    assert len(blobs(folder)) == 1


class FailingWithFiles(RecordingAgent):
    """Fails, with a file that shows how far it came."""

    async def behave(self, task: AgentTask) -> AgentResult:
        task.attach_file("so far.txt", "text/plain", b"so far")
        return failed(task, type="ProgramFailed", message="It failed.")


class BoastingAgent(Agent):
    """Lists files in its result that it never sent."""

    card = agent_card("boasting", "Boasts.")

    async def execute(self, task: AgentTask) -> AgentResult:
        result = succeeded(task, answer="done")
        result.files.add(digest=f"sha256:{PICTURE_DIGEST}", name="chart.png", size_bytes=3)
        return result


async def test_files_sent_are_listed_also_of_failed_steps_and_no_others(
    harness: Harness, url: str
) -> None:
    await harness.plan(FailingWithFiles("failing"), BoastingAgent())
    async with harness.gateway(artefacts_url=url) as gateway:
        events = await gateway.events()
    assert [file.name for file in result_of(events, "a").files] == ["so far.txt"]
    assert list(result_of(events, "b").files) == []


class DrawingAgent(Agent):
    """Draws a chart whose pictures it sends in part only."""

    card = agent_card("drawing", "Draws.")

    async def execute(self, task: AgentTask) -> AgentResult:
        specification = task.attach_file("chart.vl.json", "application/json", b"{}")
        picture = task.attach_file("chart.png", "image/png", PICTURE)
        unsent = Reference(digest="sha256:" + "0" * 64, name="unsent.svg")
        drawn = Chart(title="Drawn", specification=specification, images=[picture, unsent])
        invented = Chart(title="Invented", specification=unsent)
        task.taint()
        return succeeded(task, answer="done", charts=[drawn, invented])


@pytest.mark.requirement("A-14")
async def test_charts_name_files_of_the_run_and_no_others(harness: Harness, url: str) -> None:
    await harness.plan(DrawingAgent())
    async with harness.gateway(artefacts_url=url) as gateway:
        events = await gateway.events()
        drawn, invented = result_of(events, "a").charts
        assert [drawn.specification, *drawn.images] == list(result_of(events, "a").files)
        assert all(file.tainted for file in (drawn.specification, *drawn.images))
        assert (invented.title, invented.HasField("specification")) == ("Invented", False)
        run_id, digest = events[0].run_id, drawn.images[0].digest
        assert (await fetched(gateway, run_id, digest))[1] == PICTURE


async def test_a_crash_behind_the_stored_file_leaves_one_file(
    harness: Harness, folder: Path, url: str
) -> None:
    """The gateway dies with the blob written and no StepFinished; the step is repeated."""
    agent = await harness.plan(FileAgent("files", FILES))
    crashing = (str(PROGRAM), "kill step_finished:before")
    async with gateway_process(harness, program=crashing, artefacts_url=url) as (process, client):
        call = client.stream()
        run_id = (await call.read()).event.run_id
        await process.wait()
        call.cancel()
    assert len(blobs(folder)) == 2
    async with gateway_process(harness, artefacts_url=url) as (_, client):
        events = await client.watch(run_id)
        _, content = await fetched(client, run_id, PICTURE_DIGEST)
    assert len(agent.inputs) == 2
    assert content == PICTURE
    assert [file.name for file in result_of(events, "a").files] == ["chart.png", "rows.csv"]
    assert len(blobs(folder)) == 2


class Taking(RecordingAgent):
    """Takes files; its first call does not end if it is to be stuck."""

    def __init__(self, name: str = "taking", *, stuck: bool = False) -> None:
        super().__init__(name, card=agent_card(name, "Takes files.", takes_files=True))
        self.stuck, self.called = stuck, asyncio.Event()

    async def behave(self, task: AgentTask) -> AgentResult:
        self.called.set()
        if self.stuck and len(self.inputs) == 1:
            await asyncio.Event().wait()
        return await super().behave(task)


@pytest.fixture
async def taking(harness: Harness) -> Taking:
    """One that takes files, beside one that makes them."""
    await harness.add_agent(FileAgent("files", FILES))
    agent = Taking()
    await harness.add_agent(agent)
    return agent


async def test_files_of_earlier_steps_reach_their_agents_and_no_log(
    harness: Harness, url: str, taking: Taking
) -> None:
    plain = RecordingAgent("plain")
    await harness.add_agent(plain)
    # A file, a step that knows nothing of it, and one that takes it; beside it another file.
    harness.planner.steps = [
        step("a", "files"),
        step("b", "plain", "", "a"),
        step("c", "taking", "", "b", attachments="@{outputs.a.files}"),
        step("other", "files"),
    ]
    async with harness.gateway(artefacts_url=url) as gateway:
        events = await gateway.events()
    assert result_of(events, "c").status == SUCCEEDED
    (given,) = taking.inputs
    assert [(f.name, f.media_type, f.step_id, f.content, f.problem) for f in given.files] == [
        (name, media_type, "a", content, "") for name, (media_type, content) in FILES.items()
    ]
    assert list(plain.inputs[0].files) == []
    # A reference to files resolves to what the step made.
    named = [
        each.map_value.fields for each in given.sub_task_input["attachments"].list_value.values
    ]
    assert [(f["name"].string_value, f["digest"].string_value) for f in named] == [
        (file.name, file.digest) for file in given.files
    ]
    kept = b"".join(event.SerializeToString() for event in await log_of(harness.dsn))
    assert b"chart.png" in kept
    assert PICTURE[:64] not in kept
    assert ROWS not in kept


@pytest.mark.parametrize("most", [len(PICTURE) - 1, len(PICTURE)])
async def test_content_beyond_the_bound_is_left_out_and_why_is_stated(
    harness: Harness, url: str, taking: Taking, most: int
) -> None:
    harness.planner.steps = [step("a", "files"), step("c", "taking", "", "a")]
    async with harness.gateway(artefacts_url=url, max_input_file_bytes=most) as gateway:
        events = await gateway.events()
    assert result_of(events, "c").status == SUCCEEDED
    picture, rows = taking.inputs[0].files
    left_out, sent = (picture, rows) if most < len(PICTURE) else (rows, picture)
    assert (left_out.content, bool(sent.content), sent.problem) == (b"", True, "")
    assert "BOS_GATEWAY_MAX_INPUT_FILE_BYTES" in left_out.problem


async def test_a_file_that_is_gone_is_stated_and_the_step_goes_on(
    harness: Harness, folder: Path, url: str, taking: Taking
) -> None:
    class Losing(RecordingAgent):
        async def behave(self, task: Any) -> Any:
            emptied(folder)
            return await super().behave(task)

    await harness.add_agent(Losing("losing"))
    harness.planner.steps = [
        step("a", "files"),
        step("b", "losing", "", "a"),
        step("c", "taking", "", "b"),
    ]
    async with harness.gateway(artefacts_url=url) as gateway:
        await gateway.ask()
    files = taking.inputs[0].files
    assert [(file.content, file.problem) for file in files] == 2 * [(b"", "This file is gone.")]


async def test_a_resumed_run_sends_the_same_files(
    harness: Harness, url: str, taking: Taking
) -> None:
    """The gateway dies while the step with the files is under way; another one goes on."""
    taking.stuck = True
    harness.planner.steps = [step("a", "files"), step("c", "taking", "", "a")]
    async with gateway_process(harness, artefacts_url=url) as (process, client):
        call = client.stream()
        run_id = (await call.read()).event.run_id
        async with asyncio.timeout(60):
            await taking.called.wait()
        process.kill()
        await process.wait()
        call.cancel()
    async with gateway_process(harness, artefacts_url=url) as (_, client):
        events = await client.watch(run_id)
    assert result_of(events, "c").status == SUCCEEDED
    first, second = taking.inputs
    assert [file.content for file in first.files] == [PICTURE, ROWS]
    assert list(second.files) == list(first.files)
