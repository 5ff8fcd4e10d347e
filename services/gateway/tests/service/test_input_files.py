"""Files of earlier steps: sent to agents that take them, within a bound, and never logged."""

import asyncio
import hashlib
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from gateway_harness.harness import Harness, gateway_process, result_of

from bos.agent.v1 import AgentExecutionStatus, AgentResult, InputFile
from bos_agentkit import AgentTask, agent_card
from bos_artefacts import Owner, open_artefacts
from bos_errors import ResourceExhausted, Unavailable
from bos_gateway.effects.input_files import InputFiles
from bos_gateway.effects.memory_budget import MemoryBudget
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import FileAgent, RecordingAgent
from bos_testkit.plans import step

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
REPORT, ROWS = b"%PDF-1.7 " + bytes(range(256)) * 40, b"a,b\n1,2\n"
FILES = {"report.pdf": ("application/pdf", REPORT), "rows.csv": ("text/csv", ROWS)}


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def taking(name: str) -> RecordingAgent:
    return RecordingAgent(name, card=agent_card(name, "Takes files.", takes_files=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "artefacts"


@pytest.fixture
async def agents(harness: Harness) -> dict[str, Any]:
    """One that makes files, one that takes them, and one that does not."""
    found = {
        "files": FileAgent("files", FILES),
        "taking": taking("taking"),
        "plain": RecordingAgent("plain"),
    }
    for agent in found.values():
        await harness.add_agent(agent)
    return found


def chain() -> list[Any]:
    """A file, a step that knows nothing of it, and one that takes it; beside it another file."""
    return [
        step("a", "files"),
        step("b", "plain", "", "a"),
        step("c", "taking", "", "b"),
        step("other", "files"),
    ]


async def test_files_of_earlier_steps_reach_their_agents_and_no_log(
    harness: Harness, folder: Path, agents: dict[str, Any]
) -> None:
    harness.planner.steps = chain()
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        events = await gateway.events()
    assert result_of(events, "c").status == SUCCEEDED
    (given,) = agents["taking"].inputs
    assert [
        (f.name, f.media_type, f.digest, f.size_bytes, f.step_id, f.content, f.problem)
        for f in given.files
    ] == [
        ("report.pdf", "application/pdf", digest_of(REPORT), len(REPORT), "a", REPORT, ""),
        ("rows.csv", "text/csv", digest_of(ROWS), len(ROWS), "a", ROWS, ""),
    ]
    (plain,) = agents["plain"].inputs
    assert list(plain.files) == []
    async with connect(harness.dsn, schema=SCHEMA) as session:
        rows = await session.fetch("SELECT * FROM run_events")
    kept = b"".join(each for row in rows for each in row if isinstance(each, bytes))
    assert b"report.pdf" in kept
    assert REPORT[:64] not in kept
    assert ROWS not in kept


@pytest.mark.parametrize("most", [len(REPORT) - 1, len(REPORT)])
async def test_content_beyond_the_bound_is_left_out_and_why_is_stated(
    harness: Harness, folder: Path, agents: dict[str, Any], most: int
) -> None:
    harness.planner.steps = [step("a", "files"), step("c", "taking", "", "a")]
    url = folder.as_uri()
    async with harness.gateway(artefacts_url=url, max_input_file_bytes=most) as gateway:
        events = await gateway.events()
    assert result_of(events, "c").status == SUCCEEDED
    (given,) = agents["taking"].inputs
    report, rows = given.files
    left_out, sent = (report, rows) if most < len(REPORT) else (rows, report)
    assert (left_out.content, bool(sent.content), sent.problem) == (b"", True, "")
    assert "BOS_GATEWAY_MAX_INPUT_FILE_BYTES" in left_out.problem


async def test_a_reference_to_files_resolves_to_what_the_step_made(
    harness: Harness, folder: Path, agents: dict[str, Any]
) -> None:
    harness.planner.steps = [
        step("a", "files"),
        step("c", "taking", "", "a", attachments="@{outputs.a.files}"),
    ]
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        await gateway.events()
    (given,) = agents["taking"].inputs
    named = [
        each.map_value.fields for each in given.sub_task_input["attachments"].list_value.values
    ]
    assert [(f["name"].string_value, f["digest"].string_value) for f in named] == [
        ("report.pdf", digest_of(REPORT)),
        ("rows.csv", digest_of(ROWS)),
    ]
    assert [file.content for file in given.files] == [REPORT, ROWS]


async def test_a_file_that_is_gone_is_stated_and_the_step_goes_on(
    harness: Harness, folder: Path, agents: dict[str, Any]
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
    async with harness.gateway(artefacts_url=folder.as_uri()) as gateway:
        await gateway.events()
    (given,) = agents["taking"].inputs
    assert [(file.content, file.problem) for file in given.files] == 2 * [
        (b"", "This file is gone.")
    ]


class StuckOnce(RecordingAgent):
    """Does not end its first call."""

    def __init__(self, name: str) -> None:
        super().__init__(name, card=agent_card(name, "Takes files.", takes_files=True))
        self.called = asyncio.Event()

    async def behave(self, task: AgentTask) -> AgentResult:
        if not self.called.is_set():
            self.called.set()
            await asyncio.Event().wait()
        return await super().behave(task)


async def test_a_resumed_run_sends_the_same_files(harness: Harness, folder: Path) -> None:
    """The gateway dies while the step with the files is under way; another one goes on."""
    stuck, url = StuckOnce("stuck"), folder.as_uri()
    await harness.add_agent(FileAgent("files", FILES))
    await harness.add_agent(stuck)
    harness.planner.steps = [step("a", "files"), step("c", "stuck", "", "a")]
    async with gateway_process(harness, artefacts_url=url) as (process, client):
        call = client.stream()
        run_id = (await call.read()).event.run_id
        async with asyncio.timeout(60):
            await stuck.called.wait()
        process.kill()
        await process.wait()
        call.cancel()
    async with gateway_process(harness, artefacts_url=url) as (_, client):
        events = await client.watch(run_id)
    assert result_of(events, "c").status == SUCCEEDED
    first, second = stuck.inputs
    assert [file.content for file in first.files] == [REPORT, ROWS]
    assert list(second.files) == list(first.files)


async def test_input_files_respect_the_memory_limit_and_are_freed(
    folder: Path,
) -> None:
    owner = Owner("ada", UUID(int=1))
    store = open_artefacts(folder.as_uri())
    blob = await store.put(owner, REPORT)
    listed = [InputFile(name="a", digest=f"sha256:{blob.digest}", size_bytes=len(REPORT))]
    small, large = MemoryBudget(len(REPORT) - 1), MemoryBudget(len(REPORT))
    with pytest.raises(ResourceExhausted):
        await InputFiles(small).read(listed, owner, RunFiles(store), max_bytes=10**6, timeout_s=30)
    files = InputFiles(large)
    with pytest.raises(Unavailable):
        await files.read(listed, owner, RunFiles(None), max_bytes=10**6, timeout_s=30)
    assert large.held == 0
    await files.read(listed, owner, RunFiles(store), max_bytes=10**6, timeout_s=30)
    assert (large.held, files.read_files[0].content) == (len(REPORT), REPORT)
    del files
    assert large.held == 0
