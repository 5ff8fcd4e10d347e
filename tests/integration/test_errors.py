"""Errors and resilience on the real services: types, retries, fallbacks, user messages."""

import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bos.agent.v1 import AgentExecutionStatus, AgentResult, SideEffectClass
from bos.common.v1 import TraceEventType
from bos.gateway.v1 import RunStatus
from bos_agentkit import AgentFailure, AgentTask, agent_card, succeeded, tool
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value
from bos_errors import ConfigurationError, Unavailable
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_mcp_db.service import serve as serve_mcp_db
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_standalone.group import ServiceNotStarted
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.agents import CountingAgent, RecordingAgent
from bos_testkit.scripted_model.server import TEXT_CALLS

from .harness import (
    TODAY,
    Harness,
    no_internals,
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
ERROR = TraceEventType.TRACE_EVENT_TYPE_ERROR

LIST_TABLES = "List all tables in the database"
ALONE = "Ask the troubled agent"
BESIDE = "Ask the troubled agent and list the tables"
AFTER = "Ask the troubled agent, then list the tables"
TWO_TROUBLES = "Ask the troubled agent twice"
SEND = "Leave a mark and list the tables"
UNNAMED = "Leave a mark by a tool that the plan does not name"
MARK = "leave_mark"
ACT = "Act and then fail"
BAD_QUERY = "Show me what a bad query gives"
UNSAFE_QUERY = "Show me what an unsafe query gives"
BREAK_OUT = "Compute by breaking out"
SECRET = "postgresql://admin:hunter2@10.0.0.7/secrets"

TYPES_BY_AGENTS = ["PlanningDeclined", "HttpError", "HttpRequestError", "PathResolutionError"]

TABLES = planned("tables", "sql", LIST_TABLES)
TROUBLE = planned("trouble", "troubled", "do it")
REPLIES = [
    plan_reply(ALONE, TROUBLE),
    plan_reply(BESIDE, TROUBLE, TABLES),
    plan_reply(AFTER, TROUBLE, planned("tables", "sql", LIST_TABLES, "trouble")),
    plan_reply(TWO_TROUBLES, TROUBLE, planned("again", "troubled", "do it again")),
    plan_reply(SEND, {**planned("mark", "counting", "leave a mark"), "tool_name": MARK}, TABLES),
    plan_reply(UNNAMED, planned("mark", "counting", "leave a mark"), TABLES),
    plan_reply(ACT, planned("act", "acting", "act")),
    plan_reply(BAD_QUERY, planned("query", "sql", "find by a bad query")),
    *query_replies("find by a bad query", "SELECT no_such_column FROM invoices", "invoices"),
    plan_reply(UNSAFE_QUERY, planned("query", "sql", "find by an unsafe query")),
    *query_replies("find by an unsafe query", "DROP TABLE invoices", "invoices"),
    plan_reply(BREAK_OUT, planned("program", "computation", "break out")),
    program_reply("break out", "import os\nos.getcwd()"),
]


class TroubledAgent(RecordingAgent):
    """Raises what the test says, as long as there is something; then succeeds."""

    def __init__(self) -> None:
        super().__init__("troubled")
        self.errors: list[Exception] = []

    async def behave(self, task: AgentTask) -> AgentResult:
        if self.errors:
            raise self.errors.pop(0)
        return await super().behave(task)


class ActingAgent(RecordingAgent):
    """Does what cannot be taken back, and loses its connection afterwards."""

    def __init__(self) -> None:
        @tool(description="Acts.", side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE)
        async def act() -> dict[str, Any]:
            self.acts += 1
            return {}

        self.acts = 0
        self.tools = (act,)
        super().__init__("acting", card=agent_card("acting", "Acts.", tools=self.tools))

    async def behave(self, task: AgentTask) -> AgentResult:
        await task.tools.call("act")
        if self.acts < 5:
            raise Unavailable("The connection was lost after the act.")
        return succeeded(task, answer="Acted.")


class LookingAgent(CountingAgent):
    """Can look without approval as well, so choosing it does not name what needs one."""

    def __init__(self) -> None:
        @tool(description="Looks.", side_effect=SideEffectClass.SIDE_EFFECT_CLASS_NONE)
        async def look() -> dict[str, Any]:
            return {}

        super().__init__(protected=True)
        self.tools = [*self.all_tools(), look]
        self.card = agent_card("counting", "Leaves marks.", tools=self.tools)


@pytest.fixture(scope="module")
def agents() -> dict[str, Any]:
    return {
        "troubled": TroubledAgent(),
        "counting": LookingAgent(),
        "acting": ActingAgent(),
    }


@pytest.fixture
def troubled(agents: dict[str, Any]) -> Iterator[TroubledAgent]:
    agent: TroubledAgent = agents["troubled"]
    yield agent
    agent.errors.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings, store_url: str, clean_environment: None, agents: dict[str, Any]
) -> AsyncIterator[Harness]:
    async with open_harness(
        company, store_url, replies=REPLIES, agents=list(agents.values())
    ) as harness:
        # The composer's model has its own test; the answers here are put together by rule.
        harness.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
        yield harness


@pytest.mark.parametrize("error_type", TYPES_BY_AGENTS)
@pytest.mark.requirement("Q-01")
async def test_agents_name_the_kind_of_failure(
    harness: Harness, troubled: TroubledAgent, error_type: str
) -> None:
    troubled.errors = [AgentFailure(error_type, "It did not work out.", {"hint": "try later"})]
    outcome = await harness.ask(ALONE)

    assert outcome.results["trouble"].error.type == error_type
    assert outcome.response.error.type == error_type
    assert from_value(outcome.results["trouble"].error.details["hint"]) == "try later"


@pytest.mark.parametrize(
    ("question", "step", "error_type"),
    [
        (BAD_QUERY, "query", "QueryError"),
        (UNSAFE_QUERY, "query", "QueryError"),
        (BREAK_OUT, "program", "SandboxViolation"),
    ],
)
@pytest.mark.requirement("Q-01")
async def test_queries_and_programs_name_the_kind_of_failure(
    harness: Harness, question: str, step: str, error_type: str
) -> None:
    outcome = await harness.ask(question)
    assert outcome.results[step].error.type == error_type
    outcome.shows_no_internals()


@pytest.mark.requirement("Q-01")
async def test_uncaught_exception_shows_its_class_alone(
    harness: Harness, troubled: TroubledAgent
) -> None:
    troubled.errors = [LookupError(SECRET) for _ in range(3)]
    outcome = await harness.ask(ALONE)

    assert outcome.results["trouble"].error.type == "LookupError"
    outcome.shows_no_internals()


@pytest.mark.requirement("Q-02", "M-14")
async def test_without_a_person_to_ask_a_protected_action_is_skipped(
    harness: Harness, agents: dict[str, Any]
) -> None:
    """`hitl_skipped_non_streaming`; the other agents run normally."""
    response = await harness.client.ask(SEND, context=TODAY, trace=True)
    mark, tables = response.agent_results

    assert (mark.status, mark.error.type) == (SKIPPED, "hitl_skipped_non_streaming")
    assert tables.status == SUCCEEDED
    assert agents["counting"].effects == []
    assert [action.tool for action in mark.proposed_actions] == ["leave_mark"]
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED


@pytest.mark.requirement("Q-02", "M-02")
async def test_a_protected_tool_that_the_plan_does_not_name_is_refused(
    harness: Harness, agents: dict[str, Any]
) -> None:
    """The tool list of the task decides."""
    outcome = await harness.ask(UNNAMED)

    assert outcome.results["mark"].error.type == "PermissionDenied"
    assert agents["counting"].effects == []


@pytest.mark.requirement("Q-03")
async def test_a_listed_table_that_does_not_exist_prevents_the_start(
    company: DatabaseSettings,
) -> None:
    wrong = company.model_copy(update={"allowed_tables": ("customers", "no_such_table")})
    settings = McpDbSettings.load(databases={"company": wrong})
    with pytest.raises(ConfigurationError, match="no_such_table"):
        async with serve_mcp_db(settings, Telemetry.for_tests("mcp_db")):
            pass


@pytest.mark.requirement("Q-03")
async def test_a_gateway_without_its_store_does_not_start() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        nowhere = f"postgresql://bos@127.0.0.1:{probe.getsockname()[1]}/bos"
        settings = GatewaySettings.load(
            store_url=nowhere,
            planner_target="127.0.0.1:1",
            composer_target="127.0.0.1:1",
            agent_targets={},
        )
        with pytest.raises(Unavailable) as failure:
            async with serve_gateway(settings, Telemetry.for_tests("gateway")):
                pass
    no_internals(failure.value.message.replace("127.0.0.1", ""))


@pytest.mark.requirement("Q-03")
async def test_all_in_one_names_what_is_missing_before_anything_starts(
    tmp_path: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_DATABASE_URL", f"sqlite:///{tmp_path}/absent.db")
    settings = StandaloneSettings.load(
        data_dir=tmp_path / "data", store_url=SecretStr("postgresql://missing@127.0.0.1:1/bos")
    )
    with pytest.raises((ConfigurationError, ServiceNotStarted)) as failure:
        async with serve_all(settings, Telemetry.for_tests("standalone")):
            pass
    assert "BOS_DATABASE_ALLOWED_TABLES" in failure.value.message


@pytest.mark.requirement("Q-04")
async def test_a_failing_planner_is_replaced_by_the_heuristic(harness: Harness) -> None:
    harness.model.knobs.fail_next(2, status=500, schema="PlannerReply")
    outcome = await harness.ask(LIST_TABLES)

    assert outcome.plan.origin == "heuristic"
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED


@pytest.mark.requirement("Q-04")
async def test_the_next_agent_continues_after_a_failed_one(
    harness: Harness, troubled: TroubledAgent
) -> None:
    troubled.errors = [AgentFailure("HttpError", "The other side is down.")]
    outcome = await harness.ask(AFTER)

    assert [result.status for result in outcome.response.agent_results] == [FAILED, SUCCEEDED]
    assert outcome.results["tables"].depends_on == ["trouble"]
    assert len(rows(outcome.response.data)) == 19


@pytest.mark.requirement("Q-04")
async def test_a_failing_composer_still_leaves_an_answer(harness: Harness) -> None:
    outcome = await harness.ask(LIST_TABLES)

    assert outcome.errors("composer")
    assert outcome.results["tables"].answer in outcome.response.answer
    assert len(rows(outcome.response.data)) == 19


@pytest.mark.requirement("Q-05", "C-12")
async def test_no_exception_of_an_agent_escapes_to_the_caller(
    harness: Harness, troubled: TroubledAgent
) -> None:
    for raised in (KeyError(SECRET), RuntimeError(SECRET), ExceptionGroup(SECRET, [OSError()])):
        troubled.errors = [raised] * 3
        outcome = await harness.ask(BESIDE)
        error = outcome.results["trouble"].error
        assert error.type
        assert error.message
        assert outcome.results["tables"].status == SUCCEEDED
        outcome.shows_no_internals()


@pytest.mark.requirement("Q-06", "C-32")
async def test_what_may_end_better_next_time_is_retried(
    harness: Harness, troubled: TroubledAgent
) -> None:
    """Transient failures and unexpected exceptions."""
    for raised in (Unavailable("Away for a moment."), ZeroDivisionError()):
        troubled.errors = [raised]
        outcome = await harness.ask(ALONE)
        assert outcome.attempts("trouble") == 2
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED


@pytest.mark.requirement("Q-06")
async def test_what_fails_every_time_is_converted_to_a_failed_result(
    harness: Harness, troubled: TroubledAgent
) -> None:
    troubled.errors = [Unavailable("Away for good.")] * 10
    outcome = await harness.ask(ALONE)

    assert outcome.attempts("trouble") == 1 + troubled.card.max_retries == 3
    assert outcome.results["trouble"].status == FAILED
    assert outcome.results["trouble"].error.message == "Away for good."


@pytest.mark.parametrize(
    "raised",
    [
        ConfigurationError("SOME_VARIABLE is not set."),
        AgentFailure("ConfigurationError", "Something is not set."),
        AgentFailure("PlanningDeclined", "No endpoint fits."),
        AgentFailure("SandboxViolation", "Not allowed."),
        AgentFailure("QueryError", "Blocked."),
    ],
    ids=lambda each: getattr(each, "type", type(each).__name__),
)
@pytest.mark.requirement("Q-06")
async def test_what_cannot_end_better_is_not_retried(
    harness: Harness, troubled: TroubledAgent, raised: Exception
) -> None:
    troubled.errors = [raised] * 3
    outcome = await harness.ask(ALONE)
    assert outcome.attempts("trouble") == 1


@pytest.mark.parametrize(("question", "step"), [(UNSAFE_QUERY, "query"), (BREAK_OUT, "program")])
@pytest.mark.requirement("Q-06")
async def test_safety_blocks_and_violations_are_not_retried(
    harness: Harness, question: str, step: str
) -> None:
    assert (await harness.ask(question)).attempts(step) == 1


@pytest.mark.requirement("Q-06")
async def test_unexpected_exceptions_of_the_sql_loop_are_not_retried(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError(SECRET)

    monkeypatch.setattr("bos_sql.agent.run_attempts", broken)
    outcome = await harness.ask("How many active customers do we have in each region?")

    assert outcome.attempts("customers") == 1
    assert outcome.results["customers"].error.type == "ValueError"
    outcome.shows_no_internals()


@pytest.mark.requirement("Q-06")
async def test_an_irreversible_action_is_not_repeated_once_dispatched(
    harness: Harness, agents: dict[str, Any]
) -> None:
    outcome = await harness.ask(ACT)

    assert outcome.attempts("act") == agents["acting"].acts == 1
    assert outcome.results["act"].error.type == "Unavailable"


@pytest.mark.requirement("P-07", "Q-07")
async def test_errors_are_traced_and_results_are_in_the_response(
    harness: Harness, troubled: TroubledAgent
) -> None:
    troubled.errors = [AgentFailure("HttpError", "The other side is down.")]
    outcome = await harness.ask(BESIDE)
    failed, listed = outcome.response.agent_results

    assert (failed.agent_name, failed.status) == ("troubled", FAILED)
    assert (listed.agent_name, listed.status) == ("sql", SUCCEEDED)
    (event,) = [each for each in outcome.response.trace if each.agent == "troubled"]
    assert (event.type, event.message) == (ERROR, "The other side is down.")
    assert from_value(event.data["type"]) == "HttpError"
    assert [each.message for each in failed.trace] == ["The other side is down."]


@pytest.mark.requirement("Q-08")
async def test_something_is_a_partial_response_and_nothing_is_an_error(
    harness: Harness, troubled: TroubledAgent
) -> None:
    down = AgentFailure("HttpError", "The other side is down.")
    troubled.errors = [down]
    partial = (await harness.ask(BESIDE)).response
    troubled.errors = [down, down]
    nothing = (await harness.ask(TWO_TROUBLES)).response

    assert partial.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert not partial.HasField("error")
    assert partial.data.row_count == 19
    assert nothing.status == RunStatus.RUN_STATUS_FAILED
    assert (nothing.error.type, nothing.error.message) == ("HttpError", down.message)
    for response in (partial, nothing):
        assert down.message in response.answer


@pytest.mark.requirement("Q-09")
async def test_the_user_sees_why_an_action_was_skipped(harness: Harness) -> None:
    response = await harness.client.ask(SEND, context=TODAY)

    assert "requires user approval" in response.answer
    assert "Leave the mark" in response.answer
    assert "leave_mark" in response.agent_results[0].error.message


@pytest.mark.requirement("Q-09")
async def test_the_user_sees_why_an_agent_did_not_get_its_turn(harness: Harness) -> None:
    outcome = await harness.ask(BESIDE, max_turns=1)
    skipped = [each for each in outcome.response.agent_results if each.status == SKIPPED]

    assert [each.agent_name for each in skipped] == ["sql"]
    assert "limit of 1 turns" in outcome.response.answer


@pytest.mark.requirement("Q-09")
async def test_the_user_sees_why_a_query_was_blocked(harness: Harness) -> None:
    outcome = await harness.ask(UNSAFE_QUERY)

    (result,) = outcome.response.agent_results
    assert result.error.message in outcome.response.answer
    violations = from_value(result.error.details["violations"])
    assert "SELECT_ONLY" in {violation["rule"] for violation in violations}
