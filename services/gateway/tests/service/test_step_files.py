"""Files of steps: kept with the run, listed in its results, for its owner alone."""

import asyncio
import hashlib
import os
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import grpc
import pytest
from gateway_harness.crash.harness import PROGRAM
from gateway_harness.harness import ERASE, Client, Harness, gateway_process, result_of
from prometheus_client import CollectorRegistry

from bos.agent.v1 import AgentExecutionStatus, AgentResult, FileChunk
from bos.common.v1 import Artefact as Reference
from bos.common.v1 import Chart, TraceEventType
from bos.gateway.v1 import DownloadFileRequest
from bos_agentkit import Agent, AgentTask, agent_card, failed, succeeded
from bos_artefacts import Artefact, Owner, open_artefacts
from bos_errors import FailedPrecondition
from bos_gateway.api import LOCAL_USER
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.effects.step_files import MAX_FILE_BYTES, StepFiles
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.retention import Scope, erase, too_old
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect, open_database
from bos_testkit.agents import FileAgent, RecordingAgent
from bos_testkit.plans import step

PICTURE = bytes(range(256)) * 10_000
FILES = {"chart.png": ("image/png", PICTURE), "rows.csv": ("text/csv", b"a,b\n1,2\n")}
MIB = 1024 * 1024
PICTURE_DIGEST = hashlib.sha256(PICTURE).hexdigest()


def blobs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def put_beside(folder: Path, content: bytes) -> str:
    """Store a blob of the same run that is no file; returns its digest."""
    digest = hashlib.sha256(content).hexdigest()
    blobs(folder)[0].with_name(digest).write_bytes(content)
    return digest


def put_away(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("no folder any more")


async def fetched(client: Client, run_id: str, digest: str) -> tuple[Any, bytes]:
    """What is said of a file, and its content."""
    call = client.stub.DownloadFile(DownloadFileRequest(run_id=run_id, digest=digest), timeout=30)
    parts = [part async for part in call]
    return parts[0].file, b"".join(part.content for part in parts)


async def refused(client: Client, run_id: str, digest: str) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await fetched(client, run_id, digest)
    return caught.value.code()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artefacts"


async def test_files_are_listed_in_the_result_and_can_be_fetched(
    harness: Harness, folder: Path
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    harness.planner.steps = [step("a", "files")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        events = await gateway.events()
        run_id = events[0].run_id
        result = result_of(events, "a")
        assert [(f.name, f.media_type, f.size_bytes) for f in result.files] == [
            ("chart.png", "image/png", len(PICTURE)),
            ("rows.csv", "text/csv", 8),
        ]
        about, content = await fetched(gateway, run_id, result.files[0].digest)
        assert (about, content) == (result.files[0], PICTURE)
        # Also without the prefix, and from another gateway, which has the run from its log alone.
        async with harness.gateway(artefacts_url=folder.as_uri()) as elsewhere:
            assert (await fetched(elsewhere, run_id, PICTURE_DIGEST))[1] == PICTURE
    assert harness.composer.requests[0].results[0].files == result.files


async def test_only_files_of_the_run_that_are_still_there_are_served(
    harness: Harness, folder: Path
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    harness.planner.steps = [step("a", "files")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        run_id = (await gateway.events())[0].run_id
        inside = put_beside(folder, b"internal")
        missing = grpc.StatusCode.NOT_FOUND
        assert await refused(gateway, run_id, inside) == missing
        assert await refused(gateway, str(uuid4()), PICTURE_DIGEST) == missing
        assert await refused(gateway, "no id", PICTURE_DIGEST) == missing
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        assert await refused(gateway, run_id, "../" * 20) == invalid
        for blob in blobs(folder):
            blob.unlink()
        assert await refused(gateway, run_id, PICTURE_DIGEST) == missing


@pytest.mark.parametrize("store", ["missing", "refusing"])
async def test_step_succeeds_without_a_store_and_names_lost_files(
    harness: Harness, folder: Path, store: str
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    harness.planner.steps = [step("a", "files")]
    url = folder.as_uri() if store == "refusing" else None
    async with harness.gateway(artefacts_url=url) as gateway:
        if store == "refusing":
            put_away(folder)
        events = await gateway.events()
    result = result_of(events, "a")
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert list(result.files) == []
    said = [
        traced.message
        for event in events
        for traced in event.step_progress.events
        if traced.type == TraceEventType.TRACE_EVENT_TYPE_MESSAGE
    ]
    assert [text.partition(" was not kept: ")[0] for text in said] == [
        "The file chart.png",
        "The file rows.csv",
    ]


async def test_files_go_with_their_run_and_never_stay_behind_it(
    harness: Harness, folder: Path
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    harness.planner.steps = [step("a", "files")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        scope = Scope(run_id=UUID((await gateway.events())[0].run_id))
    async with connect(harness.dsn, schema=SCHEMA) as session:
        with pytest.raises(FailedPrecondition, match="BOS_GATEWAY_ARTEFACTS_URL"):
            await erase(session, scope)
        assert await too_old(session, after_s=0, limit=10) == []
        erased = await erase(session, scope, RunFiles(open_artefacts(folder.as_uri())))
    assert (erased["runs"], erased["files"]) == (1, len(FILES))
    assert blobs(folder) == []


async def test_command_erases_files_too_also_those_that_no_log_names(
    harness: Harness, folder: Path
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    harness.planner.steps = [step("a", "files")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        gone, kept = (await gateway.ask()).run_id, (await gateway.ask()).run_id
    mine = Owner(LOCAL_USER, UUID(gone))
    await open_artefacts(folder.as_uri()).put(mine, b"put, and then the gateway died")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ERASE, "--run", gone),
        env={
            **os.environ,
            "BOS_GATEWAY_STORE_URL": harness.dsn,
            "BOS_GATEWAY_ARTEFACTS_URL": folder.as_uri(),
        },
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"3 file(s)" in out
    assert {path.parent.name for path in blobs(folder)} == {kept}


async def test_expiry_deletes_files_and_waits_for_an_unknown_store(
    harness: Harness, folder: Path
) -> None:
    await harness.add_agent(FileAgent("files", FILES))
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        await gateway.ask()
        harness.planner.steps = [step("a", "files")]
        with_files = (await gateway.ask()).run_id
    metrics = GatewayMetrics(CollectorRegistry())
    async with open_database(harness.dsn, schema=SCHEMA) as pool:
        await Maintenance(pool, 0.0, metrics).round()
        left = await pool.fetch("SELECT run_id FROM runs")
        assert [str(row["run_id"]) for row in left] == [with_files]
        await Maintenance(pool, 0.0, metrics, RunFiles(open_artefacts(folder.as_uri()))).round()
        assert await pool.fetchval("SELECT count(*) FROM runs") == 0
    assert blobs(folder) == []


async def test_a_run_that_has_ended_gets_no_more_files(harness: Harness, folder: Path) -> None:
    async with harness.gateway() as gateway:
        run_id = UUID((await gateway.ask()).run_id)
    async with open_database(harness.dsn, schema=SCHEMA) as pool:
        files = RunFiles(open_artefacts(folder.as_uri()), pool)
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


async def test_a_step_that_fails_keeps_its_files_too(harness: Harness, folder: Path) -> None:
    await harness.add_agent(FailingWithFiles("failing"))
    harness.planner.steps = [step("a", "failing")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        events = await gateway.events()
    assert [file.name for file in result_of(events, "a").files] == ["so far.txt"]


class BoastingAgent(Agent):
    """Lists files in its result that it never sent."""

    card = agent_card("boasting", "Boasts.")

    async def execute(self, task: AgentTask) -> AgentResult:
        result = succeeded(task, answer="done")
        result.files.add(digest=f"sha256:{PICTURE_DIGEST}", name="chart.png", size_bytes=3)
        return result


async def test_an_agent_cannot_list_what_it_did_not_send(harness: Harness, folder: Path) -> None:
    await harness.add_agent(BoastingAgent())
    harness.planner.steps = [step("a", "boasting")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        events = await gateway.events()
    assert list(result_of(events, "a").files) == []


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
async def test_charts_name_files_of_the_run_and_no_others(harness: Harness, folder: Path) -> None:
    await harness.add_agent(DrawingAgent())
    harness.planner.steps = [step("a", "drawing")]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        events = await gateway.events()
        drawn, invented = result_of(events, "a").charts
        assert [drawn.specification, *drawn.images] == list(result_of(events, "a").files)
        assert all(file.tainted for file in (drawn.specification, *drawn.images))
        assert (invented.title, invented.HasField("specification")) == ("Invented", False)
        run_id, digest = events[0].run_id, drawn.images[0].digest
        assert (await fetched(gateway, run_id, digest))[1] == PICTURE


async def test_charts_name_no_files_where_none_are_kept(harness: Harness) -> None:
    await harness.add_agent(DrawingAgent())
    harness.planner.steps = [step("a", "drawing")]
    async with harness.gateway() as gateway:
        drawn, _ = result_of(await gateway.events(), "a").charts
    assert (drawn.title, len(drawn.images), drawn.HasField("specification")) == ("Drawn", 0, False)


class SlowlyEnding(FileAgent):
    """Makes its files again at every call."""

    calls = 0

    async def behave(self, task: AgentTask) -> AgentResult:
        self.calls += 1
        return await super().behave(task)


async def test_a_crash_behind_the_stored_file_leaves_one_file(
    harness: Harness, folder: Path
) -> None:
    """The gateway dies with the blob written and no StepFinished; the step is repeated."""
    agent = SlowlyEnding("files", FILES)
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "files")]
    url = folder.as_uri()
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
    assert agent.calls == 2
    assert content == PICTURE
    assert [file.name for file in result_of(events, "a").files] == ["chart.png", "rows.csv"]
    assert len(blobs(folder)) == 2


def sent(files: StepFiles, name: str, size: int, *, parts: int = 1, last: bool = True) -> None:
    for number in range(parts):
        files.take(
            FileChunk(
                name="" if number else name,
                media_type="text/plain",
                content=bytes(size // parts),
                last=last and number == parts - 1,
            )
        )


class Stored(RunFiles):
    """Keeps files of runs that are in no log."""

    def __init__(self, folder: Path) -> None:
        super().__init__(None)
        self._folder = open_artefacts(folder.as_uri())

    async def keep(self, owner: Owner, content: bytes) -> Artefact:
        return await self._folder.put(owner, content)


async def kept(files: StepFiles, folder: Path) -> tuple[list[str], list[str]]:
    stored, problems = await files.store(Owner("ada", uuid4()), Stored(folder), 10)
    return [file.name for file in stored], problems


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        ([MAX_FILE_BYTES + 2], []),
        ([MAX_FILE_BYTES, 2 * MIB + 2, 10], ["0", "2"]),
        ([1] * 17, [str(n) for n in range(16)]),
    ],
)
async def test_bounds_of_files_hold_one_by_one_and_together(
    folder: Path, sizes: list[int], names: list[str]
) -> None:
    files = StepFiles(MemoryBudget(64 * MIB))
    for number, size in enumerate(sizes):
        sent(files, str(number), size, parts=2 if size > 1 else 1)
    found, problems = await kept(files, folder)
    assert found == names
    assert len(problems) == len(sizes) - len(names)


async def test_names_that_lead_elsewhere_are_not_kept(folder: Path) -> None:
    files = StepFiles(MemoryBudget(64 * MIB))
    names = ["", ".", "..", "a/b", "a\\b", "a\nb", "\u202ea", "x" * 256]
    for name in (*names, "good.txt"):
        sent(files, name, 1)
    found, problems = await kept(files, folder)
    assert found == ["good.txt"]
    assert len(problems) == len(names)
    assert all(problem.isprintable() for problem in problems)


async def test_a_file_that_does_not_arrive_whole_is_not_kept(folder: Path) -> None:
    files = StepFiles(MemoryBudget(64 * MIB))
    sent(files, "whole.txt", 10)
    sent(files, "half.txt", 10, last=False)
    assert await kept(files, folder) == (
        ["whole.txt"],
        ["The file half.txt was not kept: it did not arrive whole."],
    )


async def test_files_of_concurrent_steps_share_the_memory_limit(folder: Path) -> None:
    room = MemoryBudget(3 * MIB)
    first, second = StepFiles(room), StepFiles(room)
    sent(first, "first", 2 * MIB)
    sent(second, "too much", 2 * MIB)
    sent(second, "small", MIB)
    assert await kept(second, folder) == (
        ["small"],
        ["The file too much was not kept: the service holds too many files at the moment."],
    )
    assert room.held == 3 * MIB
    del second
    assert room.held == 2 * MIB
    del first
    assert room.held == 0
