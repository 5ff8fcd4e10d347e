"""Partial answers, what each part may do, plans, gates and violations, on the real services."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus, SideEffectClass
from bos.gateway.v1 import RunStatus
from bos.planner.v1 import Intent
from bos_agentkit import AgentFailure, agent_card
from bos_chassis.values import from_value, from_value_map
from bos_errors import AgentErrorType
from bos_mcp_db.settings import DatabaseSettings
from bos_testkit.agents import FailingAgent
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import TEXT_CALLS

from .harness import (
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
LIST_TABLES = "List all tables in the database"
COMPLAINT = "The API answered 503 Service Unavailable."

QUERY_AND_API = "Query database and call API"
ROWS_BY_PROGRAM = "Square the first three numbers"
UNSAFE = {
    "delete": "DELETE FROM invoices",
    "two statements": "SELECT 1 AS one; DROP TABLE invoices",
    "catalog": "SELECT * FROM pg_catalog.pg_user",
    "function": "SELECT pg_sleep(20)",
}
ATTACKS = {
    "import os": ("import os\nresult = os.listdir('/')\nresult", "import"),
    "import subprocess": ("import subprocess\nsubprocess.run(['id'])", "import"),
    "open a file": ("open('/etc/passwd').read()", "name"),
    "eval": ("eval('1 + 1')", "name"),
    "walk to builtins": ("().__class__.__bases__[0].__subclasses__()", "attribute"),
}


def unsafe(name: str) -> str:
    return f"Show me what the query '{name}' gives"


def attack(name: str) -> str:
    return f"Compute by '{name}' and list all tables"


REPLIES = [
    plan_reply(
        QUERY_AND_API,
        planned("tables", "sql", LIST_TABLES),
        planned("call", "api_docs", "Call the API"),
    ),
    # The composer's model repeats the error that it was shown.
    fixture(
        "answer with the error",
        ["### Question", "Agent:", "status: failed"],
        capture={"why": r"status: failed\. Answer: [^\n]*? Error: ([^\n]*)"},
        text="Something is missing. ${why}",
    ),
    plan_reply(ROWS_BY_PROGRAM, planned("squares", "computation", "square them")),
    program_reply("square them", "[{'n': n, 'square': n * n} for n in (1, 2, 3)]"),
]
for name, sql in UNSAFE.items():
    task = f"find the rows by {name}"
    REPLIES += [
        plan_reply(unsafe(name), planned("query", "sql", task)),
        *query_replies(task, sql, "invoices"),
    ]
for name, (code, _) in ATTACKS.items():
    task = f"compute it by {name}"
    REPLIES += [
        plan_reply(
            attack(name),
            planned("program", "computation", task),
            planned("tables", "sql", LIST_TABLES),
        ),
        program_reply(task, code),
    ]

REVIEWED = "Show me what a careless review makes of a query"
NAMES = "name the regions"
CHOSEN = {
    "one agent": ("Choose one", ["computation"]),
    "both": ("Choose both", ["sql", "computation"]),
    "reversed": ("Choose both the other way round", ["computation", "sql"]),
}
NO_AGENT = "Choose no agent, this is small talk"
DATA_ANYWAY = "Small talk that asks for data"
ALIASES = "Choose by other names"
WITHOUT_STEPS = "Choose agents and no steps"
REPLIES += [
    plan_reply(REVIEWED, planned("query", "sql", NAMES)),
    *query_replies(
        NAMES,
        "SELECT region_name, ROW_NUMBER() OVER (ORDER BY region_name) AS place FROM regions",
        "regions",
        review="DELETE FROM regions",
    ),
    *(
        plan_reply(question, *(planned(f"by_{agent}", agent, "do it") for agent in agents))
        for question, agents in CHOSEN.values()
    ),
    plan_reply(NO_AGENT, intent="GENERAL_QA"),
    plan_reply(DATA_ANYWAY, planned("query", "sql", "query anyway"), intent="GENERAL_QA"),
    plan_reply(ALIASES, planned("a", " SQL_Agent", "one"), planned("b", "Computation", "two")),
    plan_reply(WITHOUT_STEPS, agents=["sql", "computation"]),
]


def api_docs() -> FailingAgent:
    """An API agent whose API does not answer."""
    card = agent_card(
        "api_docs",
        "Calls HTTP APIs.",
        capabilities=["calling APIs"],
        keywords=["api", "endpoint"],
        selection_group=1,
    )
    error = AgentFailure(AgentErrorType.HTTP_ERROR, COMPLAINT, {"status": 503})
    return FailingAgent("api_docs", error=error, partial={"endpoint": "/v1/orders"}, card=card)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings, store_url: str, clean_environment: None
) -> AsyncIterator[Harness]:
    async with open_harness(company, store_url, replies=REPLIES, agents=[api_docs()]) as harness:
        yield harness


# Partial answers


@pytest.mark.requirement("T-12")
async def test_a_failing_api_leaves_a_partial_answer_with_both_results(harness: Harness) -> None:
    outcome = await harness.ask(QUERY_AND_API)
    by_sql, by_api = outcome.response.agent_results

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert (by_sql.agent_name, by_sql.status) == ("sql", SUCCEEDED)
    assert (by_api.agent_name, by_api.status) == ("api_docs", FAILED)
    assert (by_api.error.type, by_api.error.message) == ("HttpError", COMPLAINT)
    assert from_value(by_api.error.details["status"]) == 503
    assert from_value_map(by_api.partial_data) == {"endpoint": "/v1/orders"}
    assert len(rows(outcome.response.data)) == 19
    assert outcome.response.answer == f"Something is missing. {COMPLAINT}"
    assert [list(stage.step_ids) for stage in outcome.response.metadata.stages] == [
        ["tables", "call"]
    ]


@pytest.mark.requirement("T-12")
async def test_answer_without_the_composers_model_has_the_error(
    harness: Harness,
) -> None:
    harness.model.knobs.fail_next(1000, status=500, schema=TEXT_CALLS)
    try:
        outcome = await harness.ask(QUERY_AND_API)
    finally:
        harness.model.knobs.clear()

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert outcome.results["tables"].answer in outcome.response.answer
    assert COMPLAINT in outcome.response.answer
    assert "The answer is incomplete." in outcome.response.answer
    assert len(rows(outcome.response.data)) == 19


# What each part may do


@pytest.mark.requirement("T-13")
async def test_sql_retrieves_from_the_database_and_returns_a_table(harness: Harness) -> None:
    outcome = await harness.ask("How many active customers do we have in each region?")

    assert outcome.tools("sql") == {"mcp_db_schema", "mcp_db_query"}
    assert outcome.tools("computation") == set()
    (result,) = outcome.response.agent_results
    assert result.table.row_count == len(result.table.rows) > 1
    assert from_value_map(result.data)["sql_postgres"].startswith("SELECT")


@pytest.mark.requirement("T-13")
async def test_computation_runs_python_and_returns_a_table(harness: Harness) -> None:
    outcome = await harness.ask(ROWS_BY_PROGRAM)

    assert outcome.tools("computation") == {"run_program"}
    assert outcome.tools("sql") == set()
    assert rows(outcome.results["squares"].table) == [[1, 1], [2, 4], [3, 9]]
    assert rows(outcome.response.data) == [[1, 1], [2, 4], [3, 9]]


@pytest.mark.requirement("T-13")
async def test_planner_and_composer_use_no_tools(
    harness: Harness,
) -> None:
    outcome = await harness.ask(LIST_TABLES)

    assert outcome.tools("planner") == outcome.tools("composer") == set()
    decision = outcome.decision("Planner produced execution order")
    assert decision["agents"] == list(outcome.response.planner.chosen_agents) == ["sql"]
    assert outcome.response.planner.rationale
    assert outcome.response.answer


@pytest.mark.requirement("T-13")
async def test_the_cards_offer_what_the_matrix_says(harness: Harness) -> None:
    cards = {info.card.name: info.card for info in await harness.client.agents()}
    tools = {name: {tool.name for tool in card.tools} for name, card in cards.items()}

    assert tools["sql"] == {"mcp_db_schema", "mcp_db_query"}
    assert tools["computation"] == {"calculate", "run_program"}
    assert set(cards) == {"sql", "computation", "api_docs"}, "planner and composer are no agents"
    for name in ("sql", "computation"):
        assert not any(tool.requires_approval for tool in cards[name].tools)
        assert {tool.side_effect for tool in cards[name].tools} == {
            SideEffectClass.SIDE_EFFECT_CLASS_NONE
        }


# What the planner chooses


@pytest.mark.parametrize(("question", "agents"), CHOSEN.values(), ids=CHOSEN)
@pytest.mark.requirement("T-14")
async def test_the_agents_that_the_model_chose_are_planned(
    harness: Harness, question: str, agents: list[str]
) -> None:
    plan = await harness.client.plan(question)
    assert list(plan.decision.chosen_agents) == agents
    assert [step.agent for step in plan.plan.steps] == agents
    assert plan.plan.origin == "model"


@pytest.mark.requirement("T-14", "B-08")
async def test_agents_without_steps_get_the_question_each(harness: Harness) -> None:
    """The smaller reply."""
    plan = await harness.client.plan(WITHOUT_STEPS)
    assert [(step.agent, step.task) for step in plan.plan.steps] == [
        ("sql", WITHOUT_STEPS),
        ("computation", WITHOUT_STEPS),
    ]


@pytest.mark.requirement("T-14")
async def test_aliases_in_the_models_reply_are_understood(harness: Harness) -> None:
    plan = await harness.client.plan(ALIASES)
    assert [step.agent for step in plan.plan.steps] == ["sql", "computation"]


@pytest.mark.requirement("T-14")
async def test_small_talk_needs_no_agent_and_never_a_database(harness: Harness) -> None:
    for question in (NO_AGENT, DATA_ANYWAY):
        plan = await harness.client.plan(question)
        assert plan.intent.intent == Intent.INTENT_GENERAL_QA
        assert not plan.plan.steps


@pytest.mark.requirement("T-14")
async def test_a_disabled_agent_is_left_out_although_the_model_chose_it(
    harness: Harness,
) -> None:
    plan = await harness.client.plan(CHOSEN["both"][0], disable_agents=["sql"])
    assert [step.agent for step in plan.plan.steps] == ["computation"]
    assert from_value(plan.decision.guardrails["disabled_agents"]) == ["sql"]


@pytest.mark.requirement("T-14")
async def test_preferences_reach_the_model_and_are_guardrails(
    harness: Harness,
) -> None:
    plan = await harness.client.plan(CHOSEN["both"][0], prefer_agents=["Calculator"])
    assert from_value(plan.decision.guardrails["preferred_agents"]) == ["computation"]
    assert "### Preferred agents\ncomputation" in harness.model.requests[-1].prompt


@pytest.mark.requirement("A-08")
async def test_agent_that_is_not_deployed_is_a_guardrail(
    harness: Harness,
) -> None:
    plan = await harness.client.plan(
        CHOSEN["both"][0], prefer_agents=["mail_agent"], disable_agents=["ResearchAgent"]
    )
    assert {step.agent for step in plan.plan.steps} == {"sql", "computation"}
    assert from_value(plan.decision.guardrails["unavailable_agents"]) == ["mail", "web"]


@pytest.mark.requirement("A-24")
async def test_a_question_bounds_its_tables_and_names_its_database(harness: Harness) -> None:
    whole = await harness.client.ask(LIST_TABLES)
    bounded = await harness.client.ask(LIST_TABLES, max_rows=2, max_columns=1)
    database = whole.sources[0].reference.partition(".")[0]
    named = await harness.client.ask(LIST_TABLES, backend=database)
    assert len(whole.data.rows) > 2
    assert (len(bounded.data.rows), len(bounded.data.columns)) == (2, 1)
    assert bounded.data.truncated
    assert named.data == whole.data


@pytest.mark.requirement("A-24")
async def test_unknown_backend_is_named_with_known_ones(harness: Harness) -> None:
    response = await harness.client.ask(LIST_TABLES, backend="atlantis")
    (result,) = response.agent_results
    assert result.error.type == "InvalidArgument"
    assert "request.backend: There is no database 'atlantis'; configured: " in result.error.message


# The safety gates of SQL


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.requirement("C-06", "T-14")
async def test_an_unsafe_query_is_blocked_and_the_user_sees_why(
    harness: Harness, name: str
) -> None:
    queries, reviews = harness.queries(), harness.calls("QueryReview")
    outcome = await harness.ask(unsafe(name))

    assert harness.queries() == queries, "it must not even reach the database service"
    assert harness.calls("QueryReview") == reviews, "nor the reviewing model"
    blocked(outcome)
    assert outcome.decision("safety_check")["is_safe"] is False


@pytest.mark.requirement("T-14", "D-13")
async def test_query_that_a_review_makes_unsafe_is_blocked(
    harness: Harness,
) -> None:
    """The corrected query passes the guard again."""
    before = harness.queries()
    outcome = await harness.ask(REVIEWED)

    assert harness.queries() == before + 1, "the query that was checked, and nothing else"
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert len(rows(outcome.response.data)) > 1
    checks = [e for e in outcome.response.trace if e.message == "safety_check"]
    assert [from_value(check.data["is_safe"]) for check in checks] == [True, False]
    assert "did not pass the guard" in outcome.decision("Review of the query")["verdict"]


# Failures of the sandbox


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.requirement("T-14")
async def test_program_that_breaks_out_costs_its_part_only(harness: Harness, name: str) -> None:
    code, rule = ATTACKS[name]
    before = harness.calls("ComputationPlan")
    outcome = await harness.ask(attack(name))
    result = outcome.results["program"]

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert result.error.type == "SandboxViolation"
    assert from_value(result.error.details["rule"]) == rule
    assert from_value(result.error.details["code"]) == code
    assert outcome.attempts("program") == 1, "a violation is not retried"
    assert harness.calls("ComputationPlan") == before + 1, "nor corrected"
    assert len(rows(outcome.response.data)) == 19
    assert result.error.message in outcome.response.answer
    assert "not allowed" in outcome.response.answer
    outcome.shows_no_internals()


def blocked(outcome: Outcome) -> None:
    """The step ended at once with the guard's reasons, and the answer states them."""
    (result,) = outcome.response.agent_results
    details: dict[str, Any] = {n: from_value(v) for n, v in result.error.details.items()}
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert result.error.type == "QueryError"
    assert details["violations"]
    assert all(violation["message"] for violation in details["violations"])
    assert not result.error.retryable
    assert outcome.attempts("query") == 1
    assert result.error.message in outcome.response.answer
    assert not result.HasField("table")
    outcome.shows_no_internals()
