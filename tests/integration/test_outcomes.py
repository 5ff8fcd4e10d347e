"""Capabilities, refusals, failures and revised plans on the real services around one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus, AgentResult, SideEffectClass
from bos.common.v1 import TraceEventType
from bos.gateway.v1 import RunStatus
from bos.planner.v1 import Intent
from bos.runlog.v1 import LogEvent
from bos_agentkit import AgentFailure, AgentTask
from bos_chassis.values import from_value, from_value_map
from bos_errors import Unavailable
from bos_gateway.run_log.reader import Runs
from bos_gateway.run_log.session import SCHEMA
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import open_database
from bos_testkit.agents import CountingAgent, EchoAgent, RecordingAgent
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import TEXT_CALLS

from .harness import (
    TODAY,
    Harness,
    Outcome,
    open_harness,
    plan_reply,
    planned,
    program_reply,
    query_replies,
    rows,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED
SECRET = "postgresql://admin:hunter2@10.0.0.7/secrets"

LIST_TABLES = "List all tables in the database"
REGIONS = "How many active customers do we have in each region?"
BOTH = "Choose both the other way round"
SMALL_TALK = "Small talk that asks for data"
SQUARES = "Square the first three numbers"
CIRCLE = "List what runs in circles"
UNSAFE = "Show me what an unsafe query gives"
BREAK_OUT = "Compute by breaking out and list all tables"
TROUBLE = "Ask the troubled agent and list the tables"
COLUMN = "Count the invoices beside a wrong column"
DENIED = "Leave a mark beside a wrong column"
HOPELESS = "Count what cannot be counted"
PROGRAM = "import os\nresult = os.listdir('/')\nresult"
TABLES = planned("tables", "sql", LIST_TABLES)
COUNT = planned("count", "sql", "count them well")
MARK = {**planned("mark", "counting", "leave a mark"), "tool_name": "leave_mark"}


def revised(question: str, number: int, *steps: Mapping[str, Any]) -> Fixture:
    """What the planner's model says when it is asked for revision ``number`` of a plan."""
    # More is asked for than by the fixture of the first plan, so this one answers; the errors of
    # every attempt so far are in the prompt.
    failures = [f"- wrong{n} (sql): QueryError" for n in range(1, number + 1)]
    reply = plan_reply(question, *steps).model_dump(by_alias=True)
    reply["name"] = f"revision {number} of {question}"
    reply["when"]["contains"] = [*reply["when"]["contains"], "### Plan that failed", *failures]
    return Fixture.model_validate(reply)


def wrong(number: int) -> dict[str, Any]:
    return planned(f"wrong{number}", "sql", f"count wrongly {number}")


REPLIES = [
    plan_reply(BOTH, planned("a", "Computation", "one"), planned("b", " SQL_Agent", "two")),
    plan_reply(SMALL_TALK, planned("query", "sql", "query anyway"), intent="GENERAL_QA"),
    plan_reply(SQUARES, planned("squares", "computation", "square them")),
    program_reply("square them", "[{'n': n, 'square': n * n} for n in (1, 2, 3)]"),
    plan_reply(CIRCLE, planned("a", "sql", "one", "b"), planned("b", "sql", "two", "a")),
    plan_reply(UNSAFE, planned("query", "sql", "find by an unsafe query")),
    *query_replies("find by an unsafe query", "DROP TABLE invoices", "invoices"),
    plan_reply(BREAK_OUT, planned("program", "computation", "break out"), TABLES),
    program_reply("break out", PROGRAM),
    plan_reply(TROUBLE, planned("trouble", "troubled", "do it"), TABLES),
    *(
        reply
        for n in (1, 2, 3)
        for reply in query_replies(
            f"count wrongly {n}", f"SELECT no_such_column_{n} FROM invoices", "invoices"
        )
    ),
    *query_replies("count them well", "SELECT count(*) AS total FROM invoices", "invoices"),
    plan_reply(COLUMN, planned("kept", "echo", "keep"), wrong(1)),
    revised(COLUMN, 1, COUNT, planned("repeated", "echo", "tell", n="@{outputs.kept.n}")),
    plan_reply(DENIED, MARK, wrong(1)),
    revised(DENIED, 1, COUNT),
    plan_reply(HOPELESS, wrong(1)),
    revised(HOPELESS, 1, wrong(2)),
    revised(HOPELESS, 2, wrong(3)),
    # The composer's model repeats the error that it was shown.
    fixture(
        "answer with the error",
        ["### Question", "Agent:", "status: failed"],
        capture={"why": r"status: failed\. Answer: [^\n]*? Error: ([^\n]*)"},
        text="Something is missing. ${why}",
    ),
]


class TroubledAgent(RecordingAgent):
    """Raises what the test says, as long as there is something; then succeeds."""

    def __init__(self) -> None:
        super().__init__("troubled")
        self.errors: list[Exception] = []

    async def behave(self, task: AgentTask) -> AgentResult:
        task.partial(endpoint="/v1/orders")
        if self.errors:
            raise self.errors.pop(0)
        return await super().behave(task)


@pytest.fixture(scope="module")
def agents() -> dict[str, Any]:
    return {
        "troubled": TroubledAgent(),
        "echo": EchoAgent("echo", data={"n": 7}),
        "counting": CountingAgent(protected=True),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings, store_url: str, clean_environment: None, agents: dict[str, Any]
) -> AsyncIterator[Harness]:
    async with open_harness(
        company, store_url, replies=REPLIES, agents=list(agents.values())
    ) as harness:
        yield harness


@pytest.fixture
def by_rule(harness: Harness) -> Iterator[None]:
    """The composer has no model: answers are put together by rule."""
    harness.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
    yield
    harness.model.knobs.clear()


@pytest.mark.requirement("T-13")
async def test_each_part_has_the_tools_of_the_matrix_and_no_others(harness: Harness) -> None:
    queried, computed = await harness.ask(REGIONS), await harness.ask(SQUARES)
    for outcome, tools in (
        (queried, {"sql": {"mcp_db_schema", "mcp_db_query"}, "computation": set()}),
        (computed, {"sql": set(), "computation": {"run_program"}}),
    ):
        assert {name: outcome.tools(name) for name in tools} == tools
        assert outcome.tools("planner") == outcome.tools("composer") == set()
    (result,) = queried.response.agent_results
    assert result.table.row_count == len(result.table.rows) > 1
    assert rows(computed.response.data) == [[1, 1], [2, 4], [3, 9]]

    cards = {info.card.name: info.card for info in await harness.client.agents()}
    assert cards.keys().isdisjoint({"planner", "composer"})
    offered = {name: {tool.name for tool in cards[name].tools} for name in ("sql", "computation")}
    assert offered == {
        "sql": {"mcp_db_schema", "mcp_db_query"},
        "computation": {"calculate", "run_program"},
    }
    for tool in (*cards["sql"].tools, *cards["computation"].tools):
        assert not tool.requires_approval
        assert tool.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_NONE


@pytest.mark.requirement("A-08", "T-14")
async def test_plan_follows_model_request_and_intent(harness: Harness) -> None:
    plan = await harness.client.plan(BOTH)
    assert [step.agent for step in plan.plan.steps] == ["computation", "sql"]
    assert plan.plan.origin == "model"
    plan = await harness.client.plan(
        BOTH, prefer_agents=["Calculator", "mail_agent"], disable_agents=["sql"]
    )
    assert [step.agent for step in plan.plan.steps] == ["computation"]
    guardrails = {name: from_value(value) for name, value in plan.decision.guardrails.items()}
    assert guardrails["disabled_agents"] == ["sql"]
    assert guardrails["preferred_agents"] == ["computation"]
    assert guardrails["unavailable_agents"] == ["mail"]
    plan = await harness.client.plan(SMALL_TALK)
    assert (plan.intent.intent, len(plan.plan.steps)) == (Intent.INTENT_GENERAL_QA, 0)


@pytest.mark.requirement("B-09", "B-19")
async def test_invalid_plan_is_replaced_by_the_heuristic(harness: Harness) -> None:
    outcome = await harness.ask(CIRCLE)
    assert outcome.plan.origin == "heuristic"
    assert [(step.agent, step.task) for step in outcome.plan.steps] == [("sql", CIRCLE)]
    assert any("cannot be used" in message for message in outcome.errors("planner"))
    outcome.shows_no_internals()


@pytest.mark.requirement("N-10")
async def test_two_limits_and_an_outage_are_only_a_delay(harness: Harness) -> None:
    """One retry policy for every call of a model."""
    for schema in ("PlannerReply", "QueryDraft", TEXT_CALLS):
        harness.model.knobs.fail_next(2, status=429, retry_after=0, schema=schema)
        harness.model.knobs.fail_next(1, status=500, schema=schema)
    outcome = await harness.ask(REGIONS)
    assert outcome.plan.origin == "model"
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.attempts("customers") == 1
    assert not outcome.errors("composer")


@pytest.mark.requirement("A-24")
async def test_a_question_bounds_its_tables_and_names_its_database(harness: Harness) -> None:
    whole = await harness.client.ask(LIST_TABLES)
    bounded = await harness.client.ask(LIST_TABLES, max_rows=2, max_columns=1)
    database = whole.sources[0].reference.partition(".")[0]
    named = await harness.client.ask(LIST_TABLES, backend=database)
    unknown = await harness.client.ask(LIST_TABLES, backend="atlantis")
    assert (len(bounded.data.rows), len(bounded.data.columns)) == (2, 1)
    assert bounded.data.truncated
    assert named.data == whole.data
    (result,) = unknown.agent_results
    assert result.error.type == "InvalidArgument"
    assert "request.backend: There is no database 'atlantis'; configured: " in result.error.message


@pytest.mark.requirement("C-06", "Q-06", "Q-09", "T-14")
async def test_unsafe_query_is_blocked_and_the_user_sees_why(harness: Harness) -> None:
    queries, reviews = harness.queries(), harness.calls("QueryReview")
    outcome = await harness.ask(UNSAFE)

    assert harness.queries() == queries, "it must not even reach the database service"
    assert harness.calls("QueryReview") == reviews, "nor the reviewing model"
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    (result,) = outcome.response.agent_results
    assert result.error.type == "QueryError"
    assert "SELECT_ONLY" in {v["rule"] for v in from_value(result.error.details["violations"])}
    assert outcome.attempts("query") == 1
    assert result.error.message in outcome.response.answer
    assert not result.HasField("table")
    outcome.shows_no_internals()


@pytest.mark.requirement("Q-06", "T-14")
async def test_program_that_breaks_out_costs_its_part_only(harness: Harness) -> None:
    before = harness.calls("ComputationPlan")
    outcome = await harness.ask(BREAK_OUT)
    result = outcome.results["program"]

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert result.error.type == "SandboxViolation"
    details = {name: from_value(value) for name, value in result.error.details.items()}
    assert (details["rule"], details["code"]) == ("import", PROGRAM)
    assert outcome.attempts("program") == 1, "a violation is not retried"
    assert harness.calls("ComputationPlan") == before + 1, "nor corrected"
    assert len(rows(outcome.response.data)) == 19
    assert result.error.message in outcome.response.answer
    outcome.shows_no_internals()


@pytest.mark.requirement("P-07", "Q-01", "Q-07", "Q-08", "T-12")
async def test_failing_agent_leaves_a_partial_answer_with_both_results(
    harness: Harness, agents: dict[str, Any]
) -> None:
    said = "The API answered 503 Service Unavailable."
    agents["troubled"].errors = [AgentFailure("HttpError", said, {"status": 503})]
    outcome = await harness.ask(TROUBLE)

    failed, listed = outcome.response.agent_results
    assert (failed.agent_name, failed.status) == ("troubled", FAILED)
    assert (listed.agent_name, listed.status) == ("sql", SUCCEEDED)
    assert (failed.error.type, failed.error.message) == ("HttpError", said)
    assert from_value(failed.error.details["status"]) == 503
    assert from_value_map(failed.partial_data) == {"endpoint": "/v1/orders"}
    (event,) = [each for each in outcome.response.trace if each.agent == "troubled"]
    assert (event.type, event.message) == (TraceEventType.TRACE_EVENT_TYPE_ERROR, said)
    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert not outcome.response.HasField("error")
    assert len(rows(outcome.response.data)) == 19
    assert outcome.response.answer == f"Something is missing. {said}"


@pytest.mark.usefixtures("by_rule")
@pytest.mark.requirement("C-12", "C-32", "K-16", "Q-04", "Q-05", "Q-06", "T-12")
async def test_agent_is_retried_and_its_exceptions_do_not_escape(
    harness: Harness, agents: dict[str, Any]
) -> None:
    agents["troubled"].errors = [Unavailable("Away for a moment.")]
    outcome = await harness.ask(TROUBLE)
    assert outcome.attempts("trouble") == 2
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED

    agents["troubled"].errors = [LookupError(SECRET) for _ in range(3)]
    outcome = await harness.ask(TROUBLE)
    error = outcome.results["trouble"].error
    assert outcome.attempts("trouble") == 1 + agents["troubled"].card.max_retries == 3
    assert error.type == "LookupError"
    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert outcome.errors("composer")
    for part in (error.message, outcome.results["tables"].answer, "The answer is incomplete."):
        assert part in outcome.response.answer
    outcome.shows_no_internals()


@pytest.mark.usefixtures("by_rule")
@pytest.mark.requirement("Q-09")
async def test_user_sees_why_an_agent_did_not_get_its_turn(harness: Harness) -> None:
    outcome = await harness.ask(TROUBLE, max_turns=1)
    skipped = [each for each in outcome.response.agent_results if each.status == SKIPPED]
    assert [each.agent_name for each in skipped] == ["sql"]
    assert "limit of 1 turns" in outcome.response.answer


async def nothing_ran_twice(store_url: str, run_id: str, agents: Mapping[str, Any]) -> None:
    """Every step was sent once, none that had succeeded, and agents saw the same."""
    async with open_database(store_url, schema=SCHEMA) as pool:
        events: list[LogEvent] = await Runs(pool).log(UUID(run_id))
    sent = [e.step_dispatched for e in events if e.HasField("step_dispatched")]
    keys = Counter(each.sub_task.sub_task_id for each in sent)
    assert all(count == 1 for count in keys.values()), keys
    done: set[str] = set()
    for event in events:
        if event.HasField("step_dispatched"):
            assert event.step_dispatched.step_id not in done
        elif event.step_finished.result.status == SUCCEEDED:
            done.add(event.step_finished.step_id)
    for name in ("echo", "counting"):
        arrived = [task.metadata.step_key for task in agents[name].inputs]
        own = [e.sub_task.sub_task_id for e in sent if e.sub_task.assigned_agent_role == name]
        assert sorted(key for key in arrived if key in keys) == sorted(own)


def revisions(outcome: Outcome) -> list[list[str]]:
    """The steps of every plan, the first one included."""
    plans = [event.planned.plan for event in outcome.events if event.HasField("planned")]
    return [[step.step_id for step in plan.steps] for plan in plans]


@pytest.mark.usefixtures("by_rule")
@pytest.mark.requirement("C-21", "C-25", "C-26", "C-27", "P-10")
async def test_a_column_that_does_not_exist_is_mended(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await harness.ask(COLUMN)

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert revisions(outcome) == [["kept", "wrong1"], ["count", "repeated"]]
    assert [each.agent_name for each in outcome.response.agent_results] == ["echo", "sql", "echo"]
    assert len(rows(outcome.response.data)) == 1
    assert outcome.response.metadata.revision == 1
    assert from_value(agents["echo"].inputs[-1].sub_task_input["n"]) == 7
    await nothing_ran_twice(store_url, outcome.response.run_id, agents)
    run = await harness.client.get_run(outcome.response.run_id)
    assert "replanning 1 succeeded" in [entry.entry for entry in run.journal]
    (error,) = run.working_context.errors_encountered
    assert error.startswith("wrong1 (sql): QueryError")
    outcome.shows_no_internals()


@pytest.mark.usefixtures("by_rule")
@pytest.mark.requirement("C-23")
async def test_an_action_that_was_denied_is_not_planned_again(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    events = []
    async with aclosing(harness.client.ask_stream(DENIED, context=TODAY, trace=True)) as stream:
        async for event in stream:
            events.append(event)
            if event.HasField("approval_requested"):
                await harness.client.deny(event.approval_requested.approval.approval_id)
    outcome = Outcome(events)

    assert revisions(outcome) == [["mark", "wrong1"], ["count"]]
    mark, count = outcome.response.agent_results
    assert (mark.status, mark.error.type) == (SKIPPED, "denied_by_user")
    assert count.status == SUCCEEDED
    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert agents["counting"].effects == []
    await nothing_ran_twice(store_url, outcome.response.run_id, agents)


@pytest.mark.usefixtures("by_rule")
@pytest.mark.requirement("C-22", "C-24", "C-26")
async def test_after_the_last_revision_the_failure_is_explained(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await harness.ask(HOPELESS)

    assert revisions(outcome) == [["wrong1"], ["wrong2"], ["wrong3"]]
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert "The plan was revised 2 times, which is the limit" in outcome.response.answer
    assert "no_such_column_3" in outcome.response.answer
    run = await harness.client.get_run(outcome.response.run_id)
    assert [entry.entry for entry in run.journal][-2:] == [
        "limit of 2 revisions reached",
        "definitively failed: wrong3",
    ]
    assert len(run.working_context.errors_encountered) == 3
    await nothing_ran_twice(store_url, outcome.response.run_id, agents)
    outcome.shows_no_internals()
