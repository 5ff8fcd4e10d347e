"""Demo questions whose results are drawn, alone or in reports; figures by other queries.

They are asked of the assembled product.
"""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import pytest_asyncio

from bos.gateway.v1 import RunStatus
from bos.planner.v1 import Intent
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY, load_postgres
from bos_demo.expectations import expected_facts, expected_rows, mentions, same_rows
from bos_demo.questions import (
    ChartsStep,
    SqlStep,
    load_every_question,
    load_questions,
)
from bos_demo.scripted.report import report_headings
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings

from .demo_checks import assert_answered, assert_states, reaching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bos_demo.questions import Question
    from bos_standalone.service import Standalone
    from bos_testkit.postgres import PostgresServer

    Company = asyncpg.Connection[asyncpg.Record]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

QUESTIONS = load_questions("charts")
REPORTS = load_questions("reports")
AGENTS = {name: f"bos_{name}.service:serve" for name in ("sql", "computation", "charts")}
MOST_POINTS = 100


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Standalone]:
    data = started_before(tmp_path_factory.mktemp("data"))
    settings = StandaloneSettings.load(data_dir=data, rest=False)
    telemetry = Telemetry.for_tests("standalone")
    async with serve_all(settings, telemetry, agents=AGENTS) as standalone:
        asked = {question.question for question in (*QUESTIONS, *REPORTS)}
        assert asked <= set(standalone.questions)
        yield standalone


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(postgres_server: PostgresServer) -> AsyncIterator[Company]:
    """A connection to a company of our own, for the reference queries."""
    dsn = await create_database(postgres_server.dsn(), "reference_company_of_charts")
    await load_postgres(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()


@pytest.mark.parametrize("question", reaching(QUESTIONS), ids=lambda each: each.id)
@pytest.mark.requirement("D-31", "T-08")
async def test_chart_shows_figures_of_an_independent_query(
    question: Question, product: Standalone, company: Company
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(90):
        response = await bos.ask(question.question, context=product.context)
        assert_answered(response, question)
        *_, step = question.steps
        assert isinstance(step, ChartsStep)
        # The model chooses only what the plan leaves open.
        assert response.agent_results[-1].usage.model_calls == (step.choice is not None)
        (chart,) = response.charts
        assert (chart.type, chart.x_column, tuple(chart.y_columns)) == (step.mark, step.x, step.y)
        assert chart.title in response.answer
        content = [
            await bos.download_file(response.run_id, file.digest)
            for file in (chart.specification, *chart.images)
        ]
    assert [file.media_type for file in chart.images] == ["image/png", "image/svg+xml"]
    assert content[1].startswith(b"\x89PNG\r\n\x1a\n")
    assert b"<svg" in content[2][:500]
    wanted = await expected_points(question, step, company)
    assert_drawn(content[0], step, wanted)
    assert_states(response, await expected_facts(company, question, DEFAULT_TODAY))


@pytest.mark.parametrize("question", reaching(REPORTS, of_each=1), ids=lambda each: each.id)
@pytest.mark.requirement("D-01", "D-30", "D-32", "T-08")
async def test_report_charts_show_figures_of_independent_queries(
    question: Question, product: Standalone, company: Company
) -> None:
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(180):
        response = await bos.ask(question.question, context=product.context)
        assert response.status == RunStatus.RUN_STATUS_SUCCEEDED, response
        assert response.intent.intent == Intent.INTENT_ANALYTICS_REPORT
        charts = [step for step in question.steps if isinstance(step, ChartsStep)]
        specifications = [
            await bos.download_file(response.run_id, chart.specification.digest)
            for chart in response.charts
        ]
    queries = [step for step in question.steps if isinstance(step, SqlStep)]
    # All queries run at once, then all charts.
    assert [list(stage.step_ids) for stage in response.metadata.stages] == [
        [step.id for step in queries],
        [step.id for step in charts],
    ]
    headings = report_headings(question)
    assert [section.heading for section in response.sections] == [
        headings[step.id] for step in queries
    ]
    for section, query, step in zip(response.sections, queries, charts, strict=True):
        assert list(section.step_ids) == [query.id, step.id]
        (place,) = section.charts
        chart = response.charts[place - 1]
        assert (chart.title, chart.type) == (section.heading, step.mark)
        expected = await expected_points(question, step, company)
        assert_drawn(specifications[place - 1], step, expected)
        first = (await expected_rows(company, query, DEFAULT_TODAY))[0]
        number = next(cell for cell in first if isinstance(cell, int | Decimal))
        assert mentions(section.finding, number), section
        assert f"## {section.heading}\n\n{section.finding}" in response.answer
        titles = {response.sources[number - 1].title for number in section.sources}
        assert titles == set(query.tables)
    assert len(response.highlights) >= 2
    asked = {each.question for each in load_every_question()}
    assert set(response.followups) == {each for step in queries for each in step.followups}
    assert asked >= set(response.followups) != set()


def assert_drawn(specification: bytes, step: ChartsStep, wanted: list[list[Any]]) -> None:
    """The specification holds exactly these points."""
    fields = [name for name in (step.x, *step.y, step.series) if name]
    drawn = [[row[name] for name in fields] for row in json.loads(specification)["data"]["values"]]
    assert 1 < len(wanted) <= MOST_POINTS
    assert same_rows(sorted(drawn), sorted(wanted)), (drawn, wanted)


async def expected_points(
    question: Question, step: ChartsStep, company: Company
) -> list[list[Any]]:
    """Points of the chart by the reference query; months are drawn at their first day."""
    queries = [each for each in question.steps if isinstance(each, SqlStep)]
    query = next((each for each in queries if each.id in question.depends_on(step)), queries[0])
    rows = [dict(record) for record in await expected_rows(company, query, DEFAULT_TODAY)]
    if "computation" in question.agents:
        totals = accumulate(Decimal(row["revenue"]) for row in rows)
        rows = [{**row, "total": total} for row, total in zip(rows, totals, strict=True)]
    fields = [name for name in (step.x, *step.y, step.series) if name]
    points = [[row[name] for name in fields] for row in rows]
    if step.x == "month":
        points = [[f"{month}-01", *others] for month, *others in points]
    return points
