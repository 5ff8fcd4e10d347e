"""Questions over the sample company's documents and the demo's web, asked of the assembled product.

A first start loads the documents in the background; rag, web and sql answer, the composer cites.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import SourceType
from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.documents.sources import load_sources
from bos_demo.expectations import mentions
from bos_demo.questions import RagStep, WebStep, load_document_questions, load_web_questions
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_demo.questions import Question
    from bos_standalone.service import Standalone

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

QUESTIONS = (*load_document_questions(), *load_web_questions())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(
    tmp_path_factory: pytest.TempPathFactory, clean_environment: None
) -> AsyncIterator[Standalone]:
    data = tmp_path_factory.mktemp("data")
    settings = StandaloneSettings.load(data_dir=data, demo_documents=True)
    async with serve_all(settings, Telemetry.for_tests("standalone")) as standalone:
        assert standalone.documents is not None
        assert await standalone.documents.ready(300)
        yield standalone


async def test_first_start_loads_every_document_once(product: Standalone) -> None:
    assert product.context["current_date"] == DEFAULT_TODAY.isoformat()
    assert {question.question for question in QUESTIONS} <= set(product.questions)
    assert len(load_sources()) >= 60


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
@pytest.mark.requirement("G-19", "H-05", "T-15")
async def test_answer_states_the_facts_and_cites_the_passages(
    question: Question, product: Standalone
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(60):
        response = await bos.ask(question.question, context=product.context)

    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert tuple(response.metadata.agents) == question.agents
    for result in response.agent_results:
        assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED, result.error
    missing = [fact for fact in question.facts if not mentions(response.answer, fact)]
    assert missing == [], response.answer
    documents = [
        (source.title, source.excerpt)
        for source in response.sources
        if source.type == SourceType.SOURCE_TYPE_DOCUMENT
    ]
    wanted = [
        passage for step in question.steps if isinstance(step, RagStep) for passage in step.passages
    ]
    assert {title for title, _ in documents} == {each.document for each in wanted}
    pages = {
        urlsplit(source.uri).path
        for source in response.sources
        if source.type == SourceType.SOURCE_TYPE_WEB
    }
    searched = [step for step in question.steps if isinstance(step, WebStep)]
    assert pages == {page.path for step in searched for page in step.pages}
    assert "[1]" in response.answer
