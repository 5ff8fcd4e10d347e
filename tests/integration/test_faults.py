"""Each service goes away under load and comes back: partial answers with reasons, then all is well.

Faults tested elsewhere stand in docs/operations/faults.md; ``make trial NAME=faults`` runs
them all.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
import pytest_asyncio

from bos.agent.v1 import AgentExecutionStatus
from bos.gateway.v1 import RunStatus
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import create_database
from bos_testkit.certificates import Authority
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.server import TEXT_CALLS

from .faults_harness import (
    BOTH,
    LIST_TABLES,
    REPLIES,
    SEARCHED,
    Certificates,
    FaultsHarness,
    open_faults_harness,
)
from .harness import Outcome, rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 3
_RECOVERS_S = 200.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(
    company: DatabaseSettings,
    store_url: str,
    postgres_server: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    clean_environment: None,
) -> AsyncIterator[FaultsHarness]:
    folder = tmp_path_factory.mktemp("faults")
    more_url = await create_database(postgres_server.dsn(), f"faults_{secrets.token_hex(6)}")
    certificates = Certificates(Authority(folder / "authority"), timedelta(days=1))
    async with open_faults_harness(
        company, store_url, more_url, folder, certificates, REPLIES
    ) as opened:
        yield opened
        # After all faults together: every accepted run has ended, once.
        counts = [
            await opened.count(what)
            for what in (
                "count(*) FROM runs",
                "count(finished_at) FROM runs",
                "count(*) FROM run_events WHERE kind = 'run_finished'",
            )
        ]
        assert counts == [opened.asked] * 3


@pytest.fixture(autouse=True)
def answers_by_rule(harness: FaultsHarness) -> Iterator[None]:
    """The words of answers are no matter here: they are put together by rule."""
    harness.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
    yield
    harness.model.knobs.clear()


async def recovers(harness: FaultsHarness, question: str) -> None:
    """Wait until the question is answered in full again; connections come back by themselves."""
    async with asyncio.timeout(_RECOVERS_S):
        while (  # noqa: ASYNC110  Connections come back by themselves.
            await harness.ask(question)
        ).response.status != RunStatus.RUN_STATUS_SUCCEEDED:
            await asyncio.sleep(0.05)


def names_the_failure(outcome: Outcome, failed: str, kept: str) -> None:
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
    ("part", "question", "failed", "kept"),
    [
        ("sql", BOTH, "regions", "sum"),
        ("mcp_db", BOTH, "regions", "sum"),
        ("computation", BOTH, "sum", "regions"),
        ("sandbox", BOTH, "sum", "regions"),
        ("rag", SEARCHED, "passages", "sum"),
        ("documents", SEARCHED, "passages", "sum"),
    ],
)
async def test_agent_or_its_dependency_down_costs_its_own_part(
    harness: FaultsHarness, part: str, question: str, failed: str, kept: str
) -> None:
    await recovers(harness, question)
    await harness.parts[part].stop()
    for outcome in await harness.ask_at_once(question, AT_ONCE):
        names_the_failure(outcome, failed, kept)
    await harness.parts[part].start()
    await recovers(harness, question)


async def test_expired_certificate_costs_its_own_part(
    harness: FaultsHarness,
) -> None:
    await recovers(harness, BOTH)
    harness.certificates.issue("sql", expired=True)
    async with asyncio.timeout(_RECOVERS_S):
        # Connections that were made before stay good; new ones show the new certificate.
        status = RunStatus.RUN_STATUS_SUCCEEDED
        while status == RunStatus.RUN_STATUS_SUCCEEDED:
            harness.parts["sql"].link.cut()
            status = (await harness.ask(BOTH)).response.status
    for outcome in await harness.ask_at_once(BOTH, AT_ONCE):
        names_the_failure(outcome, "regions", "sum")
    harness.certificates.issue("sql")
    await recovers(harness, BOTH)


async def test_turns_while_memory_is_down_are_recorded_later(
    harness: FaultsHarness,
) -> None:
    await harness.parts["memory"].stop()
    outcomes = await harness.ask_at_once(BOTH, AT_ONCE)
    for outcome in outcomes:
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        outcome.shows_no_internals()
    first = outcomes[0].response
    # Of this run alone: of those that follow, the last one is always still to be recorded.
    untold = f"count(*) FROM runs WHERE remembered_at IS NULL AND run_id = '{first.run_id}'"
    assert await harness.count(untold) == 1
    await harness.parts["memory"].start()
    async with asyncio.timeout(_RECOVERS_S):
        while await harness.count(untold):
            await harness.ask(LIST_TABLES, conversation=first.metadata.conversation_id)


async def test_planner_down_plans_by_keywords(
    harness: FaultsHarness,
) -> None:
    await harness.parts["planner"].stop()
    for outcome in await harness.ask_at_once(LIST_TABLES, AT_ONCE):
        assert outcome.plan.origin == "heuristic"
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        assert rows(outcome.response.data)
        outcome.shows_no_internals()
    await harness.parts["planner"].start()
    await recovers(harness, BOTH)


async def test_composer_down_agents_answer_themselves(
    harness: FaultsHarness,
) -> None:
    await harness.parts["composer"].stop()
    for outcome in await harness.ask_at_once(LIST_TABLES, AT_ONCE):
        assert outcome.response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
        assert rows(outcome.response.data)
        assert outcome.response.answer
        outcome.shows_no_internals()
    await harness.parts["composer"].start()
    await recovers(harness, LIST_TABLES)


async def test_model_rate_limited_steps_without_a_model_succeed(
    harness: FaultsHarness,
) -> None:
    harness.model.knobs.clear()
    harness.model.knobs.fail_next(100_000, status=429, retry_after=60)
    for outcome in await harness.ask_at_once(LIST_TABLES, AT_ONCE):
        assert outcome.plan.origin == "heuristic"
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        assert rows(outcome.response.data)
        outcome.shows_no_internals()
    # Steps that need a model fail at once: none waits for the minute that was asked for.
    for outcome in await harness.ask_at_once(BOTH, AT_ONCE):
        assert outcome.response.status == RunStatus.RUN_STATUS_FAILED
        assert outcome.response.error.type == "ModelRateLimited"
        assert outcome.response.error.message
        outcome.shows_no_internals()
    harness.model.knobs.clear()
    harness.model.knobs.fail_next(100_000, status=422, schema=TEXT_CALLS)
    await recovers(harness, BOTH)


async def test_slow_links_cost_no_attempt_and_answers_are_whole(
    harness: FaultsHarness,
) -> None:
    await recovers(harness, BOTH)
    harness.slow_down(slow=True)
    for outcome in await harness.ask_at_once(BOTH, AT_ONCE):
        assert outcome.response.status == RunStatus.RUN_STATUS_SUCCEEDED
        assert {outcome.attempts(step) for step in ("regions", "sum")} == {1}
    harness.slow_down(slow=False)
    await recovers(harness, BOTH)
