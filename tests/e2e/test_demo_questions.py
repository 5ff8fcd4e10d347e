"""Demo questions of each shape, asked of the assembled product over its public API.

The product is what ``bos serve all`` starts: every service on a port of its own, embedded store,
sample company, scripted model. What must come out is computed beside it, by other queries on
another copy of the same company.
"""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pypdfium2
import pytest
import pytest_asyncio
from click.testing import CliRunner

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import Table
from bos.documents.v1 import (
    Chunk,
    DocumentsServiceStub,
    DocumentState,
    ListDocumentsRequest,
    SearchDocumentsRequest,
)
from bos.gateway.v1 import RunStatus
from bos_chassis.values import from_value
from bos_cli.evaluation.questions import read_set
from bos_cli.evaluation.running import ask_all
from bos_cli.main import main
from bos_client import BosClient
from bos_client.text import files_of
from bos_client.workspace import WorkspaceClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.documents.sources import load_sources
from bos_demo.expectations import expected_facts, expected_rows, same_rows
from bos_demo.questions import (
    CitedPassage,
    FilesStep,
    Question,
    RagStep,
    load_questions,
)
from bos_standalone.service import Standalone
from bos_testkit.runs import SeenRun

from .demo_checks import Company, assert_answered, assert_states, reaching, serving
from .known_embeddings import known_embeddings

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

QUESTIONS = load_questions()
OVER_FILES = load_questions("files")
CANDIDATES = 20
"""Passages that the search of rag returns by default."""
BY_ID = {question.id: question for question in QUESTIONS}


@dataclass
class Conversation:
    client: BosClient
    context: dict[str, str]

    async def about(self, question: str) -> SeenRun:
        async with asyncio.timeout(60):
            stream = self.client.ask_stream(question, context=self.context, trace=True)
            return SeenRun([event async for event in stream])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(data: Path) -> AsyncIterator[Standalone]:
    """With every document of the company read."""
    questions = (*QUESTIONS, *OVER_FILES)
    with known_embeddings():
        async with serving(data, questions, demo_documents=True) as standalone:
            assert standalone.documents is not None
            assert await standalone.documents.ready(300)
            yield standalone


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversation(product: Standalone) -> AsyncIterator[Conversation]:
    async with BosClient(product.target, api_key=product.api_key) as client:
        yield Conversation(client, dict(product.context))


@pytest.mark.requirement("B-16", "C-05")
@pytest.mark.parametrize("question", reaching(QUESTIONS), ids=lambda each: each.id)
async def test_question_is_planned_run_and_answered(
    question: Question, conversation: Conversation, company: Company
) -> None:
    outcome = await conversation.about(question.question)
    assert_planned(outcome, question)
    assert_run(outcome, question)
    assert_in_order(outcome, question)
    await assert_tables(outcome, question, company)
    assert_answered(outcome.response, question)
    assert_states(outcome.response, await expected_facts(company, question, DEFAULT_TODAY))
    await assert_streamed(outcome, conversation.client)


def assert_planned(outcome: SeenRun, question: Question) -> None:
    (planned,) = (event.planned for event in outcome.events if event.HasField("planned"))
    assert tuple(planned.decision.chosen_agents) == question.agents
    assert [(s.step_id, s.agent, s.task, tuple(s.depends_on)) for s in planned.plan.steps] == [
        (step.id, step.agent, step.task, question.depends_on(step)) for step in question.steps
    ]
    assert planned.plan.origin == "model"
    assert [list(stage.step_ids) for stage in planned.stages] == stages_of(question)


def assert_run(outcome: SeenRun, question: Question) -> None:
    assert sorted(outcome.results) == sorted(step.id for step in question.steps)
    for result in outcome.results.values():
        assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED, result.error
        assert result.answer
    assert not outcome.response.HasField("error")


async def assert_tables(outcome: SeenRun, question: Question, company: Company) -> None:
    """Tables hold what independent queries return; the data of the response is the first."""
    queried = [step for step in question.steps if step.agent == "sql"]
    for step in queried:
        expected = [list(row) for row in await expected_rows(company, step, DEFAULT_TODAY)]
        table = outcome.results[step.id].table
        assert tuple(column.name for column in table.columns) == step.columns
        assert expected, "a reference query that finds nothing proves nothing"
        assert same_rows(rows(table), expected)
        assert not table.truncated
    if queried:
        assert rows(outcome.response.data) == rows(outcome.results[queried[0].id].table)


def assert_in_order(outcome: SeenRun, question: Question) -> None:
    """Events come in order: a step after those that it needs, its progress within it."""
    kinds = outcome.kinds
    sequences = [e.sequence for e in outcome.events if not e.HasField("answer_delta")]
    assert sequences[0] == 1
    assert all(earlier < later for earlier, later in pairwise(sequences))
    assert len({event.run_id for event in outcome.events}) == 1
    assert kinds[:2] == ["run_accepted", "planned"]
    assert kinds.count("run_finished") == 1
    assert kinds[-1] == "run_finished"
    for step in question.steps:
        started = outcome.at("step_started", step.id)
        assert started < outcome.at("step_finished", step.id) < kinds.index("answer_started")
        for needed in question.depends_on(step):
            assert outcome.at("step_finished", needed) < started
    progress = [
        (index, event.step_progress.step_id)
        for index, event in enumerate(outcome.events)
        if event.HasField("step_progress")
    ]
    assert all(
        outcome.at("step_started", step_id) < index < outcome.at("step_finished", step_id)
        for index, step_id in progress
    )
    assert {step_id for _, step_id in progress} == {step.id for step in question.steps}


async def assert_streamed(outcome: SeenRun, client: BosClient) -> None:
    """Deltas of the last attempt add up to the answer; GetRun returns the same response."""
    attempts = [e.answer_started.attempt for e in outcome.events if e.HasField("answer_started")]
    deltas = [e.answer_delta for e in outcome.events if e.HasField("answer_delta")]
    streamed = "".join(delta.text for delta in deltas if delta.attempt == attempts[-1])
    assert attempts == [1]
    assert streamed.strip() == outcome.response.answer
    run = await client.get_run(outcome.response.run_id)
    assert run.response.answer == outcome.response.answer
    assert run.status == outcome.response.status
    assert run.last_sequence == outcome.events[-1].sequence


async def test_unknown_question_names_the_nearest_known_ones(
    conversation: Conversation,
) -> None:
    outcome = await conversation.about("Who are our five best customers by revenue?")

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.response.agent_results == []
    listed = [line for line in outcome.response.answer.splitlines() if line.startswith("- ")]
    assert len(listed) == 5
    assert f"- {BY_ID['top-five-customers'].question}" in listed


@pytest.mark.parametrize("question", reaching(OVER_FILES), ids=lambda each: each.id)
@pytest.mark.requirement("J-01", "J-03", "J-05", "C-19")
async def test_result_becomes_the_file_that_was_asked_for(
    question: Question, product: Standalone
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(60):
        response = await bos.ask(question.question, context=product.context)
        assert_answered(response, question)
        wanted = [step.file for step in question.steps if isinstance(step, FilesStep) and step.file]
        listed = {file.name: file for file in files_of(response)}
        assert list(listed) == wanted
        content = b""
        for name in wanted:
            content = await bos.download_file(response.run_id, listed[name].digest)
            async with WorkspaceClient(
                product.addresses["files"], api_key=product.api_key
            ) as workspace:
                kept, same = await workspace.download(name)
            assert same == content
            assert kept.run_id == response.run_id
            assert name in response.answer
    # Spaces of a PDF are distances, which readers guess at.
    said = "".join((text_of(content) or response.answer).split())
    assert [text for text in question.holds if "".join(text.split()) not in said] == []


async def test_workspace_is_offered_over_rest(product: Standalone) -> None:
    headers = {"Authorization": f"Bearer {product.api_key}"}
    form = aiohttp.FormData()
    form.add_field("file", b"<script>alert(1)</script>", filename="page.html")
    async with aiohttp.ClientSession(product.rest_url, headers=headers) as http:
        async with http.post("/v1/files", data=form) as response:
            uploaded: Any = await response.json()
            assert response.status == 200, uploaded
            assert uploaded["file"]["name"] == "page.html"
        async with http.get("/v1/files") as response:
            assert "page.html" in [file["name"] for file in (await response.json())["files"]]
        async with http.get("/v1/files/page.html") as response:
            assert await response.read() == b"<script>alert(1)</script>"
            assert response.headers["Content-Type"] == "application/octet-stream"
            assert response.headers["Content-Disposition"].startswith("attachment")
            assert response.headers["X-Content-Type-Options"] == "nosniff"
        async with http.get("/v1/files/page.html/versions") as response:
            assert [each["version"] for each in (await response.json())["versions"]] == [1]
        async with http.delete("/v1/files/page.html") as response:
            assert response.status == 200
        async with http.get("/v1/files/page.html") as response:
            assert response.status == 404
        for path in ("/v1/files/..%2fsecret", "/v1/files/.env", "/v1/files/a%00b"):
            async with http.get(path) as response:
                assert response.status in (400, 404)


async def test_bos_files_puts_lists_gets_and_removes(
    product: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOS_TARGET", product.target)
    monkeypatch.setenv("BOS_FILES_TARGET", product.addresses["files"])
    monkeypatch.setenv("BOS_API_KEY", product.api_key)

    async def bos(*arguments: str) -> tuple[int, str]:
        done = await asyncio.to_thread(CliRunner().invoke, main, ["files", *arguments])
        return done.exit_code, done.output

    (tmp_path / "notes.txt").write_bytes(b"one")
    assert await bos("put", "notes.txt") == (0, "notes.txt: version 1\n")
    assert await bos("put", "notes.txt") == (0, "notes.txt: was there already\n")
    (tmp_path / "notes.txt").write_bytes(b"two")
    assert await bos("put", "notes.txt") == (0, "notes.txt: version 2\n")
    code, listed = await bos("list")
    assert (code, "notes.txt" in listed) == (0, True)
    code, refused = await bos("get", "notes.txt")
    assert (code, "there already" in refused) == (1, True)
    code, _ = await bos("get", "notes.txt", "--version", "1", "--output", "first.txt")
    assert (code, (tmp_path / "first.txt").read_bytes()) == (0, b"one")
    assert await bos("rm", "notes.txt", "--yes") == (0, "deleted notes.txt\n")
    code, missing = await bos("get", "notes.txt", "--output", "x")
    assert (code, "no such file" in missing) == (2, True)
    code, wrong = await bos("put", "first.txt", "--name", "../x")
    assert (code, "name" in wrong) == (2, True)


@pytest.mark.requirement("A-08", "C-19", "E-16", "G-19", "H-05", "T-08", "T-11", "T-15")
async def test_half_of_the_evaluation_set_passes(conversation: Conversation) -> None:
    """Its expectations are of independent queries; the whole set is a trial."""
    found = read_set(Path(str(files("bos_demo") / "evaluation.yaml")))
    kinds = dict.fromkeys(each.kind for each in found.questions)
    asked = [q for kind in kinds for q in [q for q in found.questions if q.kind == kind][::2]]
    chosen = found.model_copy(update={"questions": asked})

    results = await ask_all(
        conversation.client, chosen, at_once=2, timeout_s=60, done=lambda _: None
    )

    assert {each.question.kind for each in results} == {*kinds}
    for each in results:
        assert each.passed, each.as_json()
        assert each.outcome.status == "waiting_for_approval" or each.outcome.calls > 0


@pytest.mark.requirement("G-15")
async def test_every_cited_passage_is_found_in_documents_as_loaded(product: Standalone) -> None:
    how = {"metadata": (("authorization", f"Bearer {product.api_key}"),), "timeout": 60}
    lost = []
    async with grpc.aio.insecure_channel(product.addresses["documents"]) as channel:
        documents = DocumentsServiceStub(channel)
        listed = (
            await documents.ListDocuments(ListDocumentsRequest(page_size=200), **how)
        ).documents
        assert {each.name for each in listed} >= {source.name for source in load_sources()}
        assert all(each.state == DocumentState.DOCUMENT_STATE_READY for each in listed)
        for step in (
            step
            for each in load_questions("documents")
            for step in each.steps
            if isinstance(step, RagStep)
        ):
            request = SearchDocumentsRequest(query=step.task, limit=CANDIDATES)
            found = [
                each.chunk for each in (await documents.SearchDocuments(request, **how)).passages
            ]
            lost += [
                (step.task, wanted.quote)
                for wanted in step.passages
                if not any(holds(chunk, wanted) for chunk in found)
            ]
    assert lost == []


def holds(chunk: Chunk, wanted: CitedPassage) -> bool:
    return (
        chunk.document_name == wanted.document
        and wanted.section in " > ".join(chunk.section_path)
        and " ".join(wanted.quote.split()) in " ".join(chunk.text.split())
    )


def stages_of(question: Question) -> list[list[str]]:
    """Steps by the length of the longest chain that leads to them."""
    depth: dict[str, int] = {}
    for step in question.steps:
        depth[step.id] = 1 + max((depth[each] for each in question.depends_on(step)), default=-1)
    return [
        [step_id for step_id, own in depth.items() if own == level]
        for level in sorted(set(depth.values()))
    ]


def rows(table: Table) -> list[list[object]]:
    return [[from_value(cell) for cell in row.values] for row in table.rows]


def text_of(content: bytes) -> str:
    if content.startswith(b"%PDF-"):
        document = pypdfium2.PdfDocument(content)
        try:
            return "\n".join(page.get_textpage().get_text_range() for page in document)
        finally:
            document.close()
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            return book.read("xl/sharedStrings.xml").decode()
    return content.decode("utf-8-sig")
