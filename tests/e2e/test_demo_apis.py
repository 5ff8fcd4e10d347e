"""Questions over the sample company's REST API, asked of the assembled product.

The API is a real server of the demo that reads the company's database; what it must return is
computed beside it, by other queries on another copy of the same company.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value, from_value_map
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY, load_postgres
from bos_demo.expectations import expected_facts
from bos_demo.questions import ApiStep, load_questions
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.runs import SeenRun

from .demo_checks import assert_answered, assert_states, reaching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bos.common.v1 import Value
    from bos_demo.questions import Question
    from bos_standalone.service import Standalone
    from bos_testkit.postgres import PostgresServer

    Company = asyncpg.Connection[asyncpg.Record]

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTIONS = load_questions("apis")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Standalone]:
    data = started_before(tmp_path_factory.mktemp("data"))
    settings = StandaloneSettings.load(data_dir=data, rest=False, demo_documents=False)
    async with serve_all(settings, Telemetry.for_tests("standalone")) as standalone:
        yield standalone


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(postgres_server: PostgresServer) -> AsyncIterator[Company]:
    """A connection to a company of our own, for the reference queries."""
    dsn = await create_database(postgres_server.dsn(), "reference_company_of_apis")
    await load_postgres(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()


async def asked(product: Standalone, question: Question) -> SeenRun:
    """The run of a question; calls that change something are approved as they are shown."""
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(60):
        events = []
        async for event in bos.ask_stream(question.question, context=product.context, trace=True):
            events.append(event)
            if event.HasField("approval_requested"):
                (action,) = event.approval_requested.approval.actions
                shown = from_value_map(action.arguments)
                assert shown["url"].endswith("/v1/tickets")
                assert "password" not in str(shown).lower()
                await bos.approve(event.approval_requested.approval.approval_id)
    return SeenRun(events)


def chosen() -> list[Question]:
    """Two of each shape, and those that call an operation which needs approval."""
    found = reaching(QUESTIONS)
    return [*found, *(each for each in QUESTIONS if "ticket" in each.id and each not in found)]


@pytest.mark.requirement("T-11", "E-01", "E-16")
@pytest.mark.parametrize("question", chosen(), ids=lambda each: each.id)
async def test_the_answer_states_the_facts_of_the_database(
    question: Question, product: Standalone, company: Company
) -> None:
    assert question.question in product.questions
    outcome = await asked(product, question)

    assert_answered(outcome.response, question)
    for step in question.steps:
        if isinstance(step, ApiStep) and step.reference:
            expected = [row[0] for row in await company.fetch(step.reference_query(DEFAULT_TODAY))]
            table = outcome.results[step.id].table
            assert expected, "a reference query that finds nothing proves nothing"
            found = [
                {from_value(cell) for cell in row.values if _is_scalar(cell)} for row in table.rows
            ]
            assert len(found) == len(expected)
            assert all(one in row for one, row in zip(expected, found, strict=True))
            assert not table.truncated
    assert_states(outcome.response, await expected_facts(company, question, DEFAULT_TODAY))


def _is_scalar(cell: Value) -> bool:
    return cell.WhichOneof("kind") not in ("list_value", "map_value")
