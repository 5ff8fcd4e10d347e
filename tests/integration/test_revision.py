"""Plans that fail are mended by the real planner, on the real services."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos.runlog.v1 import LogEvent
from bos_chassis.values import from_value
from bos_gateway.run_log.reader import Runs
from bos_gateway.run_log.session import SCHEMA
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import open_database
from bos_testkit.agents import CountingAgent, EchoAgent, RecordingAgent
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import TEXT_CALLS

from .harness import TODAY, Harness, Outcome, open_harness, plan_reply, planned, query_replies, rows

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.requirement("C-21", "C-22", "C-23", "C-24", "C-25", "C-26", "C-27"),
]

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
SKIPPED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SKIPPED

COLUMN = "Count the invoices beside a wrong column"
DOWN = "Count the customers by the ledger"
FIELD = "Echo a field that is not there"
DENIED = "Leave a mark beside a wrong column"
INSISTS = "Leave a mark in any case"
HOPELESS = "Count what cannot be counted"
UNREVISED = "Count what is not planned again"
MARK = "leave_mark"


def revised(question: str, number: int, *steps: Mapping[str, Any]) -> Fixture:
    """What the planner's model says when it is asked for revision ``number`` of a plan."""
    # More is asked for than by the fixture of the first plan, so this one answers; the errors of
    # every attempt so far are in the prompt.
    failures = [f"- wrong{n} (sql): QueryError" for n in range(1, number + 1)]
    return fixture(
        f"revision {number} of {question}",
        [f"### Question\n{question}\n\n### Instructions", "### Plan that failed", *failures],
        schema="PlannerReply",
        json={
            "rationale": "Another way.",
            "intent": "DATA_QA",
            "confidence": 0.8,
            "steps": list(steps),
        },
    )


def wrong(number: int) -> list[Fixture]:
    """A query of a column that does not exist."""
    sql = f"SELECT no_such_column_{number} FROM invoices"
    return query_replies(f"count wrongly {number}", sql, "invoices")


def wrong_step(number: int, *needs: str) -> dict[str, Any]:
    return planned(f"wrong{number}", "sql", f"count wrongly {number}", *needs)


COUNT = planned("count", "sql", "count them well")
MARKS = {**planned("mark", "counting", "leave a mark"), "tool_name": MARK}
MARKS_AGAIN = {**planned("mark_again", "counting", "leave a mark"), "tool_name": MARK}


REPLIES = [
    *(reply for number in (1, 2, 3) for reply in wrong(number)),
    *query_replies("count them well", "SELECT count(*) AS total FROM invoices", "invoices"),
    *query_replies("count customers", "SELECT count(*) AS total FROM customers", "customers"),
    plan_reply(COLUMN, planned("kept", "echo", "keep"), wrong_step(1)),
    revised(COLUMN, 1, COUNT, planned("repeated", "echo", "tell", n="@{outputs.kept.n}")),
    plan_reply(DOWN, planned("wrong0", "ledger", "count customers")),
    revised(DOWN, 0, planned("customers", "sql", "count customers")),
    plan_reply(
        FIELD,
        planned("kept", "echo", "keep"),
        planned("lost", "echo", "tell", x="@{outputs.kept.m}"),
    ),
    revised(FIELD, 0, planned("found", "echo", "tell", x="@{outputs.kept.n}")),
    plan_reply(DENIED, MARKS, wrong_step(1)),
    revised(DENIED, 1, COUNT),
    plan_reply(INSISTS, MARKS, wrong_step(1)),
    revised(INSISTS, 1, MARKS_AGAIN, COUNT),
    plan_reply(HOPELESS, wrong_step(1)),
    revised(HOPELESS, 1, wrong_step(2)),
    revised(HOPELESS, 2, wrong_step(3)),
    plan_reply(UNREVISED, wrong_step(1)),
]


@pytest.fixture(scope="module")
def agents() -> dict[str, Any]:
    return {
        "echo": EchoAgent("echo", data={"n": 7}),
        "ledger": RecordingAgent("ledger"),
        "counting": CountingAgent(protected=True),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings, store_url: str, clean_environment: None, agents: dict[str, Any]
) -> AsyncIterator[Harness]:
    async with open_harness(
        company, store_url, replies=REPLIES, agents=list(agents.values())
    ) as harness:
        # The answers are put together by rule, so that nothing in them is scripted.
        harness.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
        yield harness


async def stored(store_url: str, run_id: str) -> list[LogEvent]:
    async with open_database(store_url, schema=SCHEMA) as pool:
        return await Runs(pool).log(UUID(run_id))


def nothing_ran_twice(events: list[LogEvent], agents: Mapping[str, Any]) -> None:
    """Every step was sent once, nothing was sent that had succeeded, and agents saw the same."""
    sent = Counter(
        e.step_dispatched.sub_task.sub_task_id for e in events if e.HasField("step_dispatched")
    )
    assert all(count == 1 for count in sent.values()), sent
    done: set[str] = set()
    for event in events:
        if event.HasField("step_dispatched"):
            assert event.step_dispatched.step_id not in done
        elif event.step_finished.result.status == SUCCEEDED:
            done.add(event.step_finished.step_id)
    for name in ("echo", "counting"):
        arrived = Counter(task.metadata.step_key for task in agents[name].inputs)
        here = {key: count for key, count in arrived.items() if key in sent}
        assert all(count == 1 for count in here.values()), here
        expected = {
            e.step_dispatched.sub_task.sub_task_id
            for e in events
            if e.step_dispatched.sub_task.assigned_agent_role == name
        }
        assert set(here) == expected


def revisions(outcome: Outcome) -> list[list[str]]:
    """The steps of every plan, the first one included."""
    plans = [event.planned.plan for event in outcome.events if event.HasField("planned")]
    return [[step.step_id for step in plan.steps] for plan in plans]


def entries(run: Any) -> list[str]:
    return [entry.entry for entry in run.journal]


@pytest.mark.requirement("P-10")
async def test_a_column_that_does_not_exist_is_mended(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await harness.ask(COLUMN)

    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert revisions(outcome) == [["kept", "wrong1"], ["count", "repeated"]]
    kept, count, repeated = outcome.response.agent_results
    assert [kept.agent_name, count.agent_name, repeated.agent_name] == ["echo", "sql", "echo"]
    assert len(rows(outcome.response.data)) == 1
    assert outcome.response.metadata.revision == 1
    assert from_value(agents["echo"].inputs[-1].sub_task_input["n"]) == 7
    nothing_ran_twice(await stored(store_url, outcome.response.run_id), agents)
    run = await harness.client.get_run(outcome.response.run_id)
    assert "replanning 1 succeeded" in entries(run)
    (error,) = run.working_context.errors_encountered
    assert error.startswith("wrong1 (sql): QueryError")
    outcome.shows_no_internals()


async def test_a_reference_to_a_field_that_is_not_there_is_mended(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await harness.ask(FIELD)

    assert outcome.results["lost"].error.type == "ReferenceUnresolved"
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert revisions(outcome) == [["kept", "lost"], ["found"]]
    assert from_value(agents["echo"].inputs[-1].sub_task_input["x"]) == 7
    nothing_ran_twice(await stored(store_url, outcome.response.run_id), agents)


async def test_an_action_that_was_denied_is_not_planned_again(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await denying(harness, DENIED)

    assert revisions(outcome) == [["mark", "wrong1"], ["count"]]
    mark, count = outcome.response.agent_results
    assert (mark.status, mark.error.type) == (SKIPPED, "denied_by_user")
    assert count.status == SUCCEEDED
    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert agents["counting"].effects == []
    nothing_ran_twice(await stored(store_url, outcome.response.run_id), agents)


async def test_a_plan_that_insists_on_what_was_denied_is_none(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await denying(harness, INSISTS)

    assert revisions(outcome) == [["mark", "wrong1"]]
    assert [r.status for r in outcome.response.agent_results] == [SKIPPED, FAILED]
    assert agents["counting"].effects == []
    asked = [e for e in outcome.events if e.HasField("approval_requested")]
    assert len(asked) == 1
    run = await harness.client.get_run(outcome.response.run_id)
    assert any(text.startswith("replanning 1 failed") for text in entries(run))


async def test_after_the_last_revision_the_failure_is_explained(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    outcome = await harness.ask(HOPELESS)

    assert revisions(outcome) == [["wrong1"], ["wrong2"], ["wrong3"]]
    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert "The plan was revised 2 times, which is the limit" in outcome.response.answer
    assert "no_such_column_3" in outcome.response.answer
    run = await harness.client.get_run(outcome.response.run_id)
    assert entries(run)[-2:] == ["limit of 2 revisions reached", "definitively failed: wrong3"]
    assert len(run.working_context.errors_encountered) == 3
    nothing_ran_twice(await stored(store_url, outcome.response.run_id), agents)
    (listed, *_) = (await harness.client.list_runs(page_size=1)).runs
    assert listed.run_id == run.run_id
    assert not listed.journal
    outcome.shows_no_internals()


@pytest.mark.requirement("C-22")
async def test_a_planner_without_another_idea_ends_the_attempts(harness: Harness) -> None:
    """Its model says the same again, which is no new plan."""
    before = harness.calls("PlannerReply")
    outcome = await harness.ask(UNREVISED)

    assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
    assert revisions(outcome) == [["wrong1"]]
    assert harness.calls("PlannerReply") == before + 2
    assert "No other plan was found." in outcome.response.answer


async def test_an_agent_that_is_down_is_mended_by_another_one(
    harness: Harness, store_url: str, agents: dict[str, Any]
) -> None:
    """The last one here: the ledger does not come back."""
    await harness.stop("ledger")
    outcome = await harness.ask(DOWN)

    assert outcome.results["wrong0"].error.type == "Unavailable"
    assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert revisions(outcome) == [["wrong0"], ["customers"]]
    assert [result.agent_name for result in outcome.response.agent_results] == ["sql"]
    assert not agents["ledger"].inputs
    outcome.shows_no_internals()


async def denying(harness: Harness, question: str) -> Outcome:
    """The run's events, in which every request to a person is denied."""
    events = []
    async with aclosing(harness.client.ask_stream(question, context=TODAY, trace=True)) as stream:
        async for event in stream:
            events.append(event)
            if event.HasField("approval_requested"):
                await harness.client.deny(event.approval_requested.approval.approval_id)
    return Outcome(events)
