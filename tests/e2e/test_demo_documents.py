"""Questions over the sample company's documents and the demo's web, asked of the assembled product.

A first start loads the documents in the background; rag, web and sql answer, the composer cites.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.documents.sources import load_sources
from bos_demo.questions import load_document_questions, load_web_questions
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

from .demo_checks import assert_answered, assert_states

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

    assert_answered(response, question)
    assert_states(response, question.facts)
