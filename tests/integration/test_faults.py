"""Each service goes away under load and comes back: partial answers with reasons, then all is well.

The faults that have tests elsewhere stand in docs/operations/faults.md; ``make test-faults`` runs
them all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.scripted_model.server import TEXT_CALLS

from .faults_house import open_faults_house
from .harness import plan_reply, planned, program_reply, query_replies, rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bos_mcp_db.settings import DatabaseSettings

    from .faults_house import FaultsHouse
    from .harness import Outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIST_TABLES = "List all tables in the database"
BOTH = "Name the regions and add the numbers up"
REPLIES = [
    plan_reply(
        BOTH,
        planned("regions", "sql", "name the regions"),
        planned("sum", "computation", "add the numbers up"),
    ),
    *query_replies("name the regions", "SELECT region_name FROM regions", "regions"),
    program_reply("add the numbers up", "result = {'total': 4000 + 321}"),
]
AT_ONCE = 3
_RECOVERS_S = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(
    company: DatabaseSettings, store_url: str, clean_environment: None
) -> AsyncIterator[FaultsHouse]:
    async with open_faults_house(company, store_url, REPLIES) as opened:
        yield opened
        # After all faults together: whatever was accepted has ended, once.
        async with connect(store_url, schema=SCHEMA) as session:
            row = await session.fetchrow(
                "SELECT count(*) AS runs, count(finished_at) AS ended, (SELECT count(*) "
                "FROM run_events WHERE kind = 'run_finished') AS ends FROM runs"
            )
        assert (row["runs"], row["ended"], row["ends"]) == (opened.asked,) * 3


@pytest.fixture(autouse=True)
def answers_by_rule(house: FaultsHouse) -> Iterator[None]:
    """The words of answers are no matter here: they are put together by rule."""
    house.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
    yield
    house.model.knobs.clear()


async def recovers(house: FaultsHouse, question: str) -> None:
    """Wait until the question is answered in full again; connections come back by themselves."""
    async with asyncio.timeout(_RECOVERS_S):
        while (  # noqa: ASYNC110  Connections come back by themselves.
            await house.ask(question)
        ).response.status != RunStatus.RUN_STATUS_SUCCEEDED:
            await asyncio.sleep(0.05)


def is_told(outcome: Outcome, failed: str, kept: str) -> None:
    """One step's result is there, and of the other one the reason why not."""
    assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    results = outcome.results
    assert results[kept].status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
    assert results[failed].status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
    assert results[failed].error.type
    assert results[failed].error.message
    assert outcome.response.answer
    outcome.shows_no_internals()


@pytest.mark.parametrize(
    ("part", "failed", "kept"),
    [
        ("sql", "regions", "sum"),
        ("mcp_db", "regions", "sum"),
        ("computation", "sum", "regions"),
        ("sandbox", "sum", "regions"),
    ],
)
async def test_agent_or_what_it_calls_is_down_and_costs_its_own_part_until_it_is_back(
    house: FaultsHouse, part: str, failed: str, kept: str
) -> None:
    await recovers(house, BOTH)
    await house.parts[part].stop()
    for outcome in await house.ask_at_once(BOTH, AT_ONCE):
        is_told(outcome, failed, kept)
    await house.parts[part].start()
    await recovers(house, BOTH)


async def test_planner_is_down_and_plans_are_made_by_keywords_until_it_is_back(
    house: FaultsHouse,
) -> None:
    await house.parts["planner"].stop()
    for outcome in await house.ask_at_once(LIST_TABLES, AT_ONCE):
        assert outcome.plan.origin == "heuristic"
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        assert rows(outcome.response.data)
        outcome.shows_no_internals()
    await house.parts["planner"].start()
    await recovers(house, BOTH)


async def test_composer_is_down_and_agents_answer_themselves_until_it_is_back(
    house: FaultsHouse,
) -> None:
    await house.parts["composer"].stop()
    for outcome in await house.ask_at_once(LIST_TABLES, AT_ONCE):
        assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
        assert rows(outcome.response.data)
        assert outcome.response.answer
        outcome.shows_no_internals()
    await house.parts["composer"].start()
    await recovers(house, LIST_TABLES)


async def test_model_refuses_every_call_by_its_limit_and_what_needs_none_goes_on(
    house: FaultsHouse,
) -> None:
    house.model.knobs.clear()
    house.model.knobs.fail_next(100_000, status=429, retry_after=60)
    for outcome in await house.ask_at_once(LIST_TABLES, AT_ONCE):
        assert outcome.plan.origin == "heuristic"
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        assert rows(outcome.response.data)
        outcome.shows_no_internals()
    house.model.knobs.clear()
    house.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
    await recovers(house, BOTH)


async def test_every_link_is_slow_and_answers_come_whole_without_another_attempt(
    house: FaultsHouse,
) -> None:
    await recovers(house, BOTH)
    house.slow_down(slow=True)
    for outcome in await house.ask_at_once(BOTH, AT_ONCE):
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        assert {outcome.attempts(step) for step in ("regions", "sum")} == {1}
    house.slow_down(slow=False)
    await recovers(house, BOTH)
