"""Questions over the sample company's documents and the demo's web, asked of the assembled product.

A first start loads the documents in the background; rag, web and sql answer, the composer cites.
Texts of theirs are worked on by the text agent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY, load_postgres
from bos_demo.documents.sources import load_sources
from bos_demo.expectations import expected_facts, mentions
from bos_demo.questions import (
    RagStep,
    TextStep,
    load_questions,
)
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

from .demo_checks import assert_answered, assert_states, reaching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_demo.questions import Question
    from bos_standalone.service import Standalone
    from bos_testkit.postgres import PostgresServer

    Company = asyncpg.Connection[asyncpg.Record]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

QUESTIONS = (*load_questions("documents"), *load_questions("web"))
TEXT_QUESTIONS = load_questions("texts")


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(postgres_server: PostgresServer) -> AsyncIterator[Company]:
    """A connection to a company of our own, for the reference queries."""
    dsn = await create_database(postgres_server.dsn(), "reference_company_of_texts")
    await load_postgres(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()


async def test_first_start_loads_every_document_once(product: Standalone) -> None:
    assert product.context["current_date"] == DEFAULT_TODAY.isoformat()
    asked = {question.question for question in (*QUESTIONS, *TEXT_QUESTIONS)}
    assert asked <= set(product.questions)
    assert len(load_sources()) >= 60


@pytest.mark.parametrize("question", reaching(QUESTIONS, of_each=3), ids=lambda each: each.id)
@pytest.mark.requirement("G-19", "H-05", "T-15")
async def test_answer_states_the_facts_and_cites_the_passages(
    question: Question, product: Standalone
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(60):
        response = await bos.ask(question.question, context=product.context)

    assert_answered(response, question)
    assert_states(response, question.facts)


@pytest.mark.parametrize("question", reaching(TEXT_QUESTIONS), ids=lambda each: each.id)
@pytest.mark.requirement("A-08", "C-19")
async def test_text_of_earlier_steps_is_worked_on_and_answered(
    question: Question, product: Standalone, company: Company
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(90):
        response = await bos.ask(question.question, context=product.context)
    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED, response
    assert tuple(response.metadata.agents) == question.agents
    for result in response.agent_results:
        ended = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
        assert result.status == ended, result.error
    *_, step = question.steps
    *_, last = response.agent_results
    assert isinstance(step, TextStep)
    assert last.usage.model_calls == 1
    data = from_value_map(last.data)
    if step.listed:
        assert data["points"] == [*step.listed]
    assert data["text"] == last.answer
    assert last.answer.splitlines()[0] in response.answer
    facts = await expected_facts(company, question, DEFAULT_TODAY)
    assert [fact for fact in facts if not mentions(last.answer, fact)] == [], last.answer
    # What rows, documents and pages say is content of others, and so is what was made of it.
    assert last.tainted
    cited = {
        each.document for one in question.steps if isinstance(one, RagStep) for each in one.passages
    }
    assert cited <= {source.title for source in response.sources}
