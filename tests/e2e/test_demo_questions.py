"""Demo questions of each shape, asked of the assembled product over its public API.

The product is what ``bos serve all`` starts: every service on a port of its own, embedded store,
sample company, scripted model. What must come out is computed beside it, by other queries on
another copy of the same company.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value, from_value_map
from bos_cli.evaluation.questions import read_set
from bos_cli.evaluation.running import ask_all
from bos_client import BosClient
from bos_demo.company import DEFAULT_TODAY, load_postgres, table_names
from bos_demo.expectations import expected_facts, expected_rows, mentions, same_rows
from bos_demo.questions import load_questions
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.runs import SeenRun

from .demo_checks import assert_answered, assert_states, reaching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bos.common.v1 import Table
    from bos_demo.questions import Question
    from bos_testkit.postgres import PostgresServer

    Company = asyncpg.Connection[asyncpg.Record]

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTIONS = load_questions()
BY_ID = {question.id: question for question in QUESTIONS}
TOP_FIVE = (
    "Which five customers brought the most revenue last quarter, "
    "and what share of the total is that?"
)


@dataclass
class Conversation:
    """Asks each question once; what several tests look at is the same run."""

    client: BosClient
    context: dict[str, str]
    outcomes: dict[str, SeenRun] = field(default_factory=dict)

    async def about(self, question: str) -> SeenRun:
        if question not in self.outcomes:
            async with asyncio.timeout(60):
                stream = self.client.ask_stream(question, context=self.context, trace=True)
                self.outcomes[question] = SeenRun([event async for event in stream])
        return self.outcomes[question]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def conversation(
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
    started_before: Callable[[Path], Path],
) -> AsyncIterator[Conversation]:
    """A client of the running product."""
    data = started_before(tmp_path_factory.mktemp("data"))
    settings = StandaloneSettings.load(data_dir=data)
    async with (
        serve_all(settings, Telemetry.for_tests("standalone")) as product,
        BosClient(product.target, api_key=product.api_key) as client,
    ):
        yield Conversation(client, dict(product.context))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def company(postgres_server: PostgresServer) -> AsyncIterator[Company]:
    """A connection to a company of our own, for the reference queries."""
    dsn = await create_database(postgres_server.dsn(), "reference_company")
    await load_postgres(dsn)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "company"})
    yield connection
    await connection.close()


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


async def test_the_verbatim_question_shows_the_computed_share(
    conversation: Conversation, company: Company
) -> None:
    """Issue "First light": sql, then computation on the sql step's output by reference."""
    outcome = await conversation.about(TOP_FIVE)
    names, top, total, share = await company.fetchrow(  # type: ignore[misc]
        BY_ID["top-five-customers-share"].facts_query(DEFAULT_TODAY)
    )
    answer, computed = outcome.response.answer, from_value_map(outcome.results["share"].data)

    assert [step.agent for step in outcome.plan.steps] == ["sql", "computation"]
    assert from_value(outcome.plan.steps[1].sub_task_input["customers"]) == (
        "@{outputs.top_customers.rows}"
    )
    assert computed["result"]["share_percent"] == share
    assert f"{share} percent" in answer
    assert [name for name in names.split("|") if name in answer] == names.split("|")
    assert mentions(answer, top)
    assert mentions(answer, total)
    assert len(outcome.response.data.rows) == 5


@pytest.mark.requirement("T-10")
async def test_list_all_tables_is_answered_by_sql_alone(conversation: Conversation) -> None:
    """One agent, then a composed answer."""
    outcome = await conversation.about("List all tables in the database")

    assert list(outcome.response.planner.chosen_agents) == ["sql"]
    assert [result.agent_name for result in outcome.response.agent_results] == ["sql"]
    assert [row[0] for row in rows(outcome.response.data)] == list(table_names())
    assert {event.agent for event in outcome.response.trace} == {"planner", "sql", "composer"}
    assert "answer_delta" in outcome.kinds


async def test_unknown_question_names_the_nearest_known_ones(
    conversation: Conversation,
) -> None:
    outcome = await conversation.about("Who are our five best customers by revenue?")

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.response.agent_results == []
    listed = [line for line in outcome.response.answer.splitlines() if line.startswith("- ")]
    assert len(listed) == 5
    assert f"- {BY_ID['top-five-customers'].question}" in listed


async def test_a_slice_of_the_evaluation_set_passes(conversation: Conversation) -> None:
    """Every third question of the kinds that need no documents."""
    found = read_set(Path(str(files("bos_demo") / "evaluation.yaml")))
    kinds = ("sql", "computation", "chains", "parallel", "talk", "clarified", "approved")
    asked = [each for each in found.questions if each.kind in kinds][::3]
    chosen = found.model_copy(update={"questions": asked})

    results = await ask_all(
        conversation.client, chosen, at_once=2, timeout_s=60, done=lambda _: None
    )

    assert len(results) >= 12
    for each in results:
        assert each.passed, each.as_json()
        assert each.outcome.status == "waiting_for_approval" or each.outcome.calls > 0


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
