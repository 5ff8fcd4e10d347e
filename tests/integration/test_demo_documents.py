"""Questions over the sample company's documents: real parsing, chunks, embedding, index and search.

The rag agent runs before a scripted model. What an answer cites is held against the passage's text
and against the document's source.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import (
    AgentExecutionStatus,
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ExecuteRequest,
)
from bos.documents.v1 import (
    Document,
    DocumentsServiceStub,
    DocumentState,
    ListDocumentsRequest,
    Passage,
    SearchDocumentsRequest,
    WatchDocumentRequest,
)
from bos_chassis.telemetry import Telemetry
from bos_demo.company import DEFAULT_TODAY
from bos_demo.documents.rendering import render
from bos_demo.documents.sources import load_sources
from bos_demo.expectations import mentions
from bos_demo.questions import CitedPassage, Question, RagStep, load_questions
from bos_demo.scripted.replies import demo_fixtures
from bos_llm import Models
from bos_postgres import create_database
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .library import documents_and_rag, upload

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

QUESTIONS = load_questions("documents")
SOURCES = load_sources()
CANDIDATES = 20
"""How many passages rag's search brings by default."""


@dataclass
class Library:
    """The services, with every document of the company read and indexed."""

    documents: Any
    rag: Any

    async def all(self) -> list[Document]:
        request = ListDocumentsRequest(page_size=200)
        return list((await self.documents.ListDocuments(request, timeout=60)).documents)

    async def ended(self, document_id: str) -> None:
        """Wait until a document is read; the stream ends once it is."""
        request = WatchDocumentRequest(document_id=document_id)
        async for _ in self.documents.WatchDocument(request, timeout=240):
            pass

    async def search(self, query: str) -> list[Passage]:
        request = SearchDocumentsRequest(query=query, limit=CANDIDATES)
        return list((await self.documents.SearchDocuments(request, timeout=60)).passages)

    async def answer(self, step: RagStep) -> AgentResult:
        request = AgentInput(agent_id=step.id, agent_name="rag", task=step.task)
        results = [
            message.result
            async for message in self.rag.Execute(ExecuteRequest(input=request), timeout=60)
            if message.HasField("result")
        ]
        return results[-1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def library(
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[Library]:
    folder = tmp_path_factory.mktemp("library")
    dsn = await create_database(postgres_server.dsn(), "demo_documents")
    async with AsyncExitStack() as stack:
        scripted = await stack.enter_async_context(ScriptedModel(demo_fixtures(DEFAULT_TODAY)))
        models = await stack.enter_async_context(
            Models(model_settings(scripted, max_attempts=1), Telemetry.for_tests("rag"))
        )
        found, agent = await stack.enter_async_context(documents_and_rag(dsn, folder, models))
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(each.address))
            for each in (found, agent)
        ]
        library = Library(DocumentsServiceStub(channels[0]), AgentServiceStub(channels[1]))
        for source in SOURCES:
            await library.documents.UploadDocument(upload(source.name, render(source)), timeout=60)
        for document in await library.all():
            await library.ended(document.document_id)
        yield library


def cited(question: Question) -> RagStep:
    (step,) = (step for step in question.steps if isinstance(step, RagStep))
    return step


def plain(text: str) -> str:
    return " ".join(text.split())


def holds(found: Passage, wanted: CitedPassage) -> bool:
    chunk = found.chunk
    return (
        chunk.document_name == wanted.document
        and wanted.section in " > ".join(chunk.section_path)
        and plain(wanted.quote) in plain(chunk.text)
    )


async def test_every_document_is_read_and_found(library: Library) -> None:
    found = await library.all()
    assert {each.name for each in found} == {source.name for source in SOURCES}
    unread = [
        (each.name, each.failure.reason)
        for each in found
        if each.state != DocumentState.DOCUMENT_STATE_READY or not each.chunk_count
    ]
    assert unread == []


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
@pytest.mark.requirement("G-15", "G-16", "G-17")
async def test_passages_are_found_cited_and_answered(question: Question, library: Library) -> None:
    step = cited(question)
    for query in (question.question, step.task):
        hits = await library.search(query)
        missing = [p for p in step.passages if not any(holds(each, p) for each in hits)]
        assert missing == [], [each.chunk.document_name for each in hits]

    result = await library.answer(step)
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED, result.error
    assert not result.answer.startswith("The documents say"), result.answer
    found = {each.chunk.chunk_id: each for each in hits}
    quotes = {plain(wanted.quote) for wanted in step.passages}
    for source in result.sources:
        excerpt = plain(source.excerpt)
        assert excerpt in plain(found[source.reference].chunk.text)
        assert excerpt in quotes
    references = {source.reference for source in result.sources}
    for wanted in step.passages:
        assert any(holds(found[each], wanted) for each in references)
    if len(question.steps) == 1:
        assert [fact for fact in question.facts if not mentions(result.answer, fact)] == []
