"""Questions whose results are drawn, alone or in reports, and questions over the sample mailbox.

They are asked of the assembled product; figures come of other queries, mails go by real servers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bos.gateway.v1 import RunStatus
from bos.planner.v1 import Intent
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_client.user_connections import ConnectionClient
from bos_demo.company import DEFAULT_TODAY
from bos_demo.expectations import expected_facts, expected_rows, mentions, same_rows
from bos_demo.mailbox.letters import OWNER
from bos_demo.questions import (
    ChartsStep,
    Question,
    SqlStep,
    load_every_question,
    load_questions,
)
from bos_demo.scripted.report import report_headings
from bos_standalone.service import Standalone
from bos_testkit.runs import SeenRun

from .demo_checks import Company, assert_answered, assert_states, reaching, serving, some_agents

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

QUESTIONS = load_questions("charts")
REPORTS = load_questions("reports")
MAILS = load_questions("mail")
BY_ID = {question.id: question for question in MAILS}
MOST_POINTS = 100


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(data: Path) -> AsyncIterator[Standalone]:
    agents = some_agents("sql", "computation", "charts", "mail")
    questions = (*QUESTIONS, *REPORTS, *MAILS)
    async with serving(data, questions, agents=agents, rest=False) as standalone:
        yield standalone


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


@pytest.mark.parametrize("question", reaching(REPORTS), ids=lambda each: each.id)
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


async def asked(product: Standalone, question: Question) -> tuple[SeenRun, list[str]]:
    """The run of a question, whose mails are approved; and the subjects that were approved."""
    approved: list[str] = []
    async with BosClient(product.target, api_key=product.api_key) as bos, asyncio.timeout(90):
        events = []
        async for event in bos.ask_stream(question.question, context=product.context, trace=True):
            events.append(event)
            if event.HasField("approval_requested"):
                (action,) = event.approval_requested.approval.actions
                shown = from_value_map(action.arguments)
                assert shown["sender"] == OWNER
                approved.append(str(shown["subject"]))
                await bos.approve(event.approval_requested.approval.approval_id)
    return SeenRun(events), approved


async def test_sent_mail_is_in_both_mailboxes(product: Standalone, company: Company) -> None:
    question = BY_ID["mail-best-customer"]
    await asked(product, question)
    name, revenue = await expected_facts(company, question, DEFAULT_TODAY)
    for folder in ("sent", "unread"):
        found = await listed(product, folder)
        assert any(each["subject"] == "Best customer of last quarter" for each in found), folder
        assert any(name in each["snippet"] for each in found), (folder, revenue)


async def test_orders_in_a_mail_are_data(product: Standalone) -> None:
    before = await listed(product, "sent")
    run, approved = await asked(product, BY_ID["mail-hostile"])

    assert approved == []
    assert [step.agent for step in run.plan.steps] == ["mail"]
    assert await listed(product, "sent") == before
    assert any(each["subject"] == "New bank details" for each in await listed(product, "unread"))
    assert "archive@mail-backup.example" not in run.response.answer


async def test_sample_mailbox_leaves_the_users_own_alone(
    clean_environment: None, tmp_path: Path, started_before: Callable[[Path], Path]
) -> None:
    folder = started_before(tmp_path / "data")
    alone = some_agents("sql", "mail")
    own = {"address": "me@example.com", "user": "me", "imap_host": "i.example", "smtp_host": "s"}

    @asynccontextmanager
    async def connections(**settings: bool) -> AsyncIterator[tuple[Standalone, ConnectionClient]]:
        async with (
            serving(folder, (), agents=alone, rest=False, **settings) as standalone,
            ConnectionClient(
                standalone.addresses["identity"], api_key=standalone.api_key
            ) as client,
        ):
            yield standalone, client

    asked = {question.question for question in MAILS}
    async with connections() as (_, client):
        (sample,) = await client.connections()
        assert sample.fields["address"] == OWNER
    async with connections(demo_mailbox=False) as (standalone, client):
        assert list(await client.connections()) == []
        assert not asked & set(standalone.questions)
        await client.connect("mail.imap", "own-password", own, "Mine")
    async with connections() as (standalone, client):
        (kept,) = await client.connections()
        assert (kept.label, dict(kept.fields)) == ("Mine", own)
        assert not asked & set(standalone.questions)


async def listed(product: Standalone, folder: str) -> list[dict[str, str]]:
    """Mails of a folder as the mail agent lists them."""
    run, _ = await asked(product, BY_ID[f"mail-{folder}"])
    (result,) = run.results.values()
    found: list[dict[str, str]] = from_value_map(result.data)["messages"]
    return found
