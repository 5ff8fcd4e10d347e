"""Bad input, absent services and a misbehaving model: a clear typed error or the documented
fallback, never a hang, and never the text of an exception (issue "First light").
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos_client import BosClient
from bos_errors import DeadlineExceeded, InvalidArgument, NotFound, ResourceExhausted
from bos_mcp_db.settings import DatabaseSettings
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.processes import free_port
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import TEXT_CALLS, Knobs

from .harness import (
    Harness,
    Outcome,
    no_internals,
    open_harness,
    plan_reply,
    planned,
    program_reply,
    query_replies,
    rows,
)

if TYPE_CHECKING:
    from .conftest import StartHarness

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIST_TABLES = "List all tables in the database"
REGIONS = "How many active customers do we have in each region?"
LOAN = (
    "What is the monthly instalment (EMI) of a loan of Rs. 25,00,000 at 9 percent a year over "
    "60 months?"
)
# A query that is reviewed, and whose answer is shown as the sql agent words it.
RANKED = "Show me the places of the regions in the alphabet"
PLACES = "number the regions by name"
# A computation whose answer is shown as the agent words it.
SUM = "Add up what I wrote on the paper"
ALWAYS = 1000

CYCLE = "List what runs in circles"
SELF = "List what waits for itself"
DANGLING = "List what refers to nothing"
ABSENT_NEED = "List what waits for no agent"
UNKNOWN_AGENT = "List what no agent can do"
TWICE = "List what has one name twice"
LATE = "Ask a slow agent"
BESIDE = "Ask a slow agent and list the tables"
AWAY = "Ask an agent that is away and list the tables"
ABSENT = "Ask an agent that never came and list the tables"

REPLIES = [
    plan_reply(RANKED, {**planned("ranks", "sql", PLACES), "is_final_answer": True}),
    *query_replies(
        PLACES,
        "SELECT region_name, ROW_NUMBER() OVER (ORDER BY region_name) AS place FROM regions",
        "regions",
    ),
    plan_reply(SUM, {**planned("sum", "computation", "add them up"), "is_final_answer": True}),
    program_reply("add them up", "result = {'total': 4000 + 321}"),
    fixture(
        "words of the sum",
        ["### Task\nadd them up\n"],
        schema="ComputationSummary",
        json={"answer": "Together they are 4321.", "table": None},
    ),
    plan_reply(CYCLE, planned("a", "sql", "one", "b"), planned("b", "sql", "two", "a")),
    plan_reply(SELF, planned("a", "sql", "one", "a")),
    plan_reply(DANGLING, planned("a", "computation", "one", rows="@{outputs.ghost.rows}")),
    plan_reply(ABSENT_NEED, planned("a", "sql", "one", "ghost")),
    plan_reply(UNKNOWN_AGENT, planned("a", "oracle", "one")),
    plan_reply(TWICE, planned("a", "sql", "one"), planned("a", "sql", "two")),
    plan_reply(LATE, planned("wait", "slow", "wait")),
    plan_reply(BESIDE, planned("wait", "slow", "wait"), planned("tables", "sql", LIST_TABLES)),
    plan_reply(AWAY, planned("away", "away", "be there"), planned("tables", "sql", LIST_TABLES)),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings, store_url: str, clean_environment: None
) -> AsyncIterator[Harness]:
    slow = SlowAgent("slow", partial={"found": "half of it"})
    async with open_harness(
        company,
        store_url,
        replies=REPLIES,
        agents=[slow, EchoAgent("away")],
        targets={"absent": f"127.0.0.1:{free_port()}"},
    ) as harness:
        yield harness


@pytest.fixture
def knobs(harness: Harness) -> Any:
    yield harness.model.knobs
    harness.model.knobs.clear()


# Requests that cannot be run.


@pytest.mark.parametrize("field", ["prefer_agents", "disable_agents"])
async def test_an_unknown_agent_is_refused_by_name(harness: Harness, field: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await harness.client.ask(LIST_TABLES, **{field: ["sql", "fortune_teller"]})  # type: ignore[arg-type]
    (violation,) = refused.value.violations
    assert violation.field == f"request.{field}"
    assert '"fortune_teller"' in violation.description
    assert "computation" in violation.description


@pytest.mark.parametrize("question", ["", "   ", "\n\t"])
async def test_an_empty_question_is_refused(harness: Harness, question: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await harness.client.ask(question)
    assert [violation.field for violation in refused.value.violations] == ["request.question"]


async def test_a_question_beyond_the_limit_is_refused(harness: Harness) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await harness.client.ask("x" * 32_769)
    assert [violation.field for violation in refused.value.violations] == ["request.question"]


async def test_an_oversized_context_is_refused_with_the_limit(harness: Harness) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await harness.client.ask(LIST_TABLES, context={"notes": "x" * 70_000})
    (violation,) = refused.value.violations
    assert violation.field == "request.context"
    assert "65536" in violation.description


async def test_a_message_beyond_what_grpc_takes_is_refused(harness: Harness) -> None:
    with pytest.raises(ResourceExhausted):
        await harness.client.ask(LIST_TABLES, context={"notes": "x" * 9_000_000})


async def test_no_time_at_all_is_refused(harness: Harness) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await harness.client.ask(LIST_TABLES, timeout_s=0)
    assert refused.value.violations[0].field == "timeout_s"


@pytest.mark.parametrize("call", ["get_run", "cancel"])
async def test_an_unknown_run_is_not_found(harness: Harness, call: str) -> None:
    with pytest.raises(NotFound):
        await getattr(harness.client, call)("019a0000-0000-7000-8000-000000000000")
    with pytest.raises((InvalidArgument, NotFound)):
        await getattr(harness.client, call)("no such thing")


# Plans that must not be run.


@pytest.mark.parametrize(
    "question", [CYCLE, SELF, DANGLING, ABSENT_NEED, UNKNOWN_AGENT, TWICE], ids=str
)
@pytest.mark.requirement("B-09", "B-19")
async def test_an_invalid_plan_is_replaced_by_the_heuristic(
    harness: Harness, question: str
) -> None:
    """The heuristic plans, and the trace says why."""
    outcome = await harness.ask(question)

    assert outcome.plan.origin == "heuristic"
    assert [(step.agent, step.task) for step in outcome.plan.steps] == [("sql", question)]
    assert any("cannot be used" in message for message in outcome.errors("planner"))
    assert outcome.response.status != RunStatus.RUN_STATUS_UNSPECIFIED
    assert outcome.response.answer
    outcome.shows_no_internals()


# Time.


async def test_a_run_out_of_time_says_so_and_keeps_what_there_is(harness: Harness) -> None:
    async with asyncio.timeout(60):
        outcome = await harness.ask(LATE, timeout_s=10)

    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    result = outcome.results["wait"]
    assert result.error.type == "DeadlineExceeded"
    assert result.partial_data.fields["found"].string_value == "half of it"
    assert "slow" in outcome.response.answer
    outcome.shows_no_internals()


async def test_a_slow_agent_costs_its_own_part_only(harness: Harness) -> None:
    outcome = await harness.ask(BESIDE, timeout_s=15)

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert outcome.results["wait"].error.type == "DeadlineExceeded"
    assert len(rows(outcome.response.data)) == 19
    outcome.shows_no_internals()


async def test_a_caller_that_stops_waiting_gets_deadline_exceeded(harness: Harness) -> None:
    """The run itself goes on; the caller's time is the caller's."""
    async with BosClient(harness.client.target, run_timeout_s=0.3) as impatient:
        with pytest.raises(DeadlineExceeded):
            await impatient.ask(LATE)


async def test_a_model_slower_than_the_run_ends_in_time(harness: Harness, knobs: Knobs) -> None:
    knobs.latency_s = 600
    async with asyncio.timeout(60):
        outcome = await harness.ask(REGIONS, timeout_s=2)

    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert outcome.response.error.type
    assert outcome.response.answer
    outcome.shows_no_internals()


# Agents that are not there.


async def test_an_agent_that_never_came_is_listed_with_the_reason(harness: Harness) -> None:
    agents = {info.card.name: info for info in await harness.client.agents()}
    assert not agents["absent"].available
    assert agents["absent"].unavailable_reason
    assert agents["sql"].available
    no_internals(agents["absent"].unavailable_reason)


async def test_an_agent_that_went_away_costs_its_own_part_only(harness: Harness) -> None:
    assert (await harness.ask(AWAY)).response.status == RunStatus.RUN_STATUS_SUCCEEDED
    await harness.stop("away")
    outcome = await harness.ask(AWAY)

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    result = outcome.results["away"]
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
    assert result.error.type == "Unavailable"
    assert outcome.attempts("away") == 3, "a connection that is refused is worth a retry"
    assert len(rows(outcome.response.data)) == 19
    outcome.shows_no_internals()


@pytest.mark.parametrize(
    ("part", "question", "step"),
    [("sandbox", LOAN, "emi"), ("mcp_db", REGIONS, "customers"), ("sql", REGIONS, "customers")],
    ids=["sandbox", "mcp_db", "sql"],
)
async def test_a_service_that_went_away_is_a_typed_error(
    part: str, question: str, step: str, start_harness: StartHarness
) -> None:
    harness = await start_harness()
    await harness.stop(part)
    outcome = await harness.ask(question)

    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert outcome.results[step].error.type in ("Unavailable", "QueryError")
    assert outcome.response.error.type == outcome.results[step].error.type
    assert outcome.response.answer
    outcome.shows_no_internals()


@pytest.mark.requirement("K-16", "Q-04")
async def test_without_the_composer_the_agents_answer_themselves(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness()
    await harness.stop("composer")
    outcome = await harness.ask(LIST_TABLES)

    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert outcome.response.answer == outcome.results["tables"].answer
    assert len(rows(outcome.response.data)) == 19
    assert outcome.errors("composer")
    outcome.shows_no_internals()


async def test_without_the_planner_keywords_plan_and_the_trace_says_so(
    start_harness: StartHarness,
) -> None:
    harness = await start_harness()
    await harness.stop("planner")
    outcome = await harness.ask(LIST_TABLES)

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.plan.origin == "heuristic"
    assert len(rows(outcome.response.data)) == 19
    assert outcome.errors("planner")
    outcome.shows_no_internals()


# A model that does not do its part.


@dataclass(frozen=True)
class Fault:
    """Trouble with every call that asks for one schema."""

    name: str
    turn: Callable[[Knobs, str], None]
    error: str
    """Type of the error where there is no fallback."""

    def __str__(self) -> str:
        return self.name


INVALID, AWAY_ERROR, LIMITED = "ModelOutputInvalid", "ModelUnavailable", "ModelRateLimited"
FAULTS = [
    Fault("prose", lambda k, s: k.prose_next(ALWAYS, schema=s), INVALID),
    Fault("broken connection", lambda k, s: k.broken_stream_next(ALWAYS, schema=s), AWAY_ERROR),
    Fault("429", lambda k, s: k.fail_next(ALWAYS, status=429, schema=s), LIMITED),
]
"""One for each type of error; ``libs/llm`` shows which replies lead to which."""
every_fault = pytest.mark.parametrize("fault", FAULTS, ids=str)


@every_fault
@pytest.mark.requirement("B-09", "Q-04")
async def test_a_planner_whose_model_fails_plans_by_heuristic(
    harness: Harness, knobs: Knobs, fault: Fault
) -> None:
    fault.turn(knobs, "PlannerReply")
    outcome = await harness.ask(LIST_TABLES)

    assert outcome.plan.origin == "heuristic"
    assert outcome.response.planner.confidence == pytest.approx(0.4)
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert len(rows(outcome.response.data)) == 19
    assert outcome.errors("planner")
    outcome.shows_no_internals()


@every_fault
async def test_sql_agent_without_a_model_fails_and_queries_nothing(
    harness: Harness, knobs: Knobs, fault: Fault
) -> None:
    fault.turn(knobs, "QueryDraft")
    queries = harness.queries()
    outcome = await harness.ask(REGIONS)

    assert harness.queries() == queries
    fails_with(outcome, "customers", fault.error)


@every_fault
@pytest.mark.parametrize("schema", ["QueryReview", "ResultInterpretation"])
async def test_a_sql_agent_does_without_what_is_only_nice_to_have(
    harness: Harness, knobs: Knobs, fault: Fault, schema: str
) -> None:
    calls = harness.calls(schema)
    fault.turn(knobs, schema)
    outcome = await harness.ask(RANKED)

    assert harness.calls(schema) > calls
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert len(rows(outcome.response.data)) > 1
    assert outcome.results["ranks"].answer
    outcome.shows_no_internals()


@every_fault
async def test_a_computation_whose_model_writes_no_program_says_so(
    harness: Harness, knobs: Knobs, fault: Fault
) -> None:
    fault.turn(knobs, "ComputationPlan")
    fails_with(await harness.ask(LOAN), "emi", fault.error)


@every_fault
async def test_a_computation_states_its_result_without_the_models_words(
    harness: Harness, knobs: Knobs, fault: Fault
) -> None:
    calls = harness.calls("ComputationSummary")
    assert (await harness.ask(SUM)).response.answer == "Together they are 4321."
    fault.turn(knobs, "ComputationSummary")
    outcome = await harness.ask(SUM)

    assert harness.calls("ComputationSummary") > calls + 1
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.response.answer == "The result is total = 4321."
    outcome.shows_no_internals()


@every_fault
async def test_a_composer_whose_model_fails_answers_from_the_results(
    harness: Harness, knobs: Knobs, fault: Fault
) -> None:
    """Prose looks like an answer, and so does half of one."""
    fault.turn(knobs, TEXT_CALLS)
    outcome = await harness.ask(REGIONS)

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.response.answer
    assert len(rows(outcome.response.data)) > 1
    if fault.name not in ("prose", "half json"):
        assert outcome.results["customers"].answer in outcome.response.answer
        assert outcome.errors("composer")
    outcome.shows_no_internals()


@pytest.mark.requirement("N-10")
async def test_two_limits_and_an_outage_are_only_a_delay(harness: Harness, knobs: Knobs) -> None:
    """One retry policy for every call of a model."""
    for schema in ("PlannerReply", "QueryDraft", TEXT_CALLS):
        knobs.fail_next(2, status=429, retry_after=0, schema=schema)
        knobs.fail_next(1, status=500, schema=schema)
    outcome = await harness.ask(REGIONS)

    assert outcome.plan.origin == "model"
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert outcome.attempts("customers") == 1
    assert not outcome.errors("composer")


async def test_a_question_the_model_was_not_prepared_for_ends_honestly(harness: Harness) -> None:
    """The scripted model refuses; sql can then write no query, and the answer says why."""
    outcome = await harness.ask("Show me the most beautiful customers")

    assert outcome.plan.origin == "heuristic"
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert outcome.response.error.type == "ModelRefused"
    outcome.shows_no_internals()


async def test_many_bad_requests_at_once_leave_the_harness_in_order(harness: Harness) -> None:
    async def bad(number: int) -> bool:
        try:
            await harness.client.ask("" if number % 2 else LIST_TABLES, prefer_agents=["unknown"])
        except InvalidArgument:
            return True
        return False

    assert all(await asyncio.gather(*(bad(number) for number in range(20))))
    assert (await harness.ask(LIST_TABLES)).response.status == RunStatus.RUN_STATUS_SUCCEEDED


def fails_with(outcome: Outcome, step: str, error: str) -> None:
    """The run failed for this reason, and the client gets it in plain words."""
    result = outcome.results[step]
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
    assert result.error.type == error
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert outcome.response.error.type == error
    assert result.error.message in outcome.response.answer
    assert outcome.errors(result.agent_name)
    outcome.shows_no_internals()
