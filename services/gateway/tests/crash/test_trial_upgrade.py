"""Trial: this version and the next one beside one another, and back again."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from gateway_harness.crash import next_version
from gateway_harness.harness import Client, Harness, gateway_process
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from gateway_harness.stored import ended_once, fetch, log_of, until

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_testkit.agents import EchoAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step

# A replica that cannot read a run leaves it to others for this long, and then for longer.
_HOLD_OFF_S = 0.2


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """How the next version is started."""
    return next_version.build(tmp_path_factory.mktemp("next"))


def version(
    harness: Harness, program: Sequence[str] = ("-m", "bos_gateway")
) -> AbstractAsyncContextManager[tuple[ForkedProcess, Client]]:
    # On standard error, which is shown where a test fails.
    return gateway_process(harness, log=2, program=program, hold_off_s=_HOLD_OFF_S)


async def gated_and_good(harness: Harness) -> asyncio.Event:
    gate = asyncio.Event()

    async def gated(_: Any) -> AgentResult:
        await gate.wait()
        return success()

    await add_raw_agent(harness, RawAgent("gated", gated, default_timeout_s=600.0))
    await harness.plan(EchoAgent("good"))
    harness.planner.by_question = {"gated": [step("a", "good"), step("b", "gated", "", "a")]}
    return gate


async def started(harness: Harness, client: Client, question: str) -> None:
    """A run whose first step has ended and whose second one waits."""
    call = client.stream(question)
    await call.read()
    await until(
        harness.dsn,
        "count(*) = 2 FROM run_events AS e JOIN runs AS r USING (run_id) "
        "WHERE r.question = $1 AND e.kind = 'step_dispatched'",
        question,
    )
    call.cancel()


async def serves(client: Client, question: str) -> None:
    assert (await client.ask(question)).status == RUN_STATUS_SUCCEEDED


@pytest.mark.timeout(900)
async def test_runs_of_both_versions_are_finished_by_the_newer_one(
    harness: Harness, newer: Sequence[str]
) -> None:
    gate = await gated_and_good(harness)
    async with version(harness) as (old, old_client):
        await started(harness, old_client, "gated by the old?")
        async with version(harness, newer) as (new, new_client):
            # The schema is the next one's now, and this version serves on it.
            assert await fetch(harness.dsn, "SELECT note FROM runs")
            await serves(old_client, "good at the old, after the migration?")
            await started(harness, new_client, "gated by the new?")
            # What the next version alone makes an event of.
            noted = (
                "INSERT INTO run_inputs (run_id, kind, payload) "
                "SELECT run_id, 'noted', $1 FROM runs WHERE question = 'gated by the new?'"
            )
            await fetch(harness.dsn, noted, next_version.noted())
            await until(harness.dsn, "count(*) = 1 FROM run_events WHERE kind = 'noted'")
            await fetch(harness.dsn, "DELETE FROM run_inputs")
            new.kill()
            await new.wait()
            # The remaining replica adopts it, cannot read it, and releases it again and again.
            await until(
                harness.dsn,
                "bool_and(epoch >= 3 AND replica_id IS NULL AND finished_at IS NULL) FROM runs "
                "WHERE question = 'gated by the new?'",
            )
            await serves(old_client, "good at the old, beside what it cannot read?")
        async with version(harness, newer) as (_, new_client):
            await until(
                harness.dsn,
                "bool_and(replica_id IS NOT NULL) FROM runs WHERE question = 'gated by the new?'",
                within_s=180,  # its back-off has grown while no replica could read it
            )
            # The rollout goes on: what the old one had begun is finished by the new one.
            old.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(old.wait(), 60) == 0
            await serves(new_client, "good at the new, alone?")
            gate.set()
            await until(harness.dsn, "bool_and(finished_at IS NOT NULL) FROM runs", within_s=120)
    for row in await fetch(harness.dsn, "SELECT question FROM runs"):
        end = await ended_once(harness.dsn, row["question"])
        assert end.run_finished.response.status == RUN_STATUS_SUCCEEDED, row["question"]
    # What was done was not done again, and what was noted is there once.
    first = [
        event.step_dispatched.attempt
        for question in ("gated by the old?", "gated by the new?")
        for event in await log_of(harness.dsn, "question = $1", question)
        if event.step_dispatched.step_id == "a"
    ]
    assert first == [1, 1]
    assert len(await fetch(harness.dsn, "SELECT FROM run_events WHERE kind = 'noted'")) == 1


@pytest.mark.timeout(600)
async def test_rollback_resumes_all_runs_but_those_of_newer_events(
    harness: Harness, newer: Sequence[str]
) -> None:
    gate = await gated_and_good(harness)
    async with version(harness, newer) as (new, new_client):
        await started(harness, new_client, "gated by the new?")
        new.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(new.wait(), 60) == 0
    gate.set()
    async with version(harness) as (_, old_client):
        # On the newer schema, which nothing takes back.
        await serves(old_client, "good at the old?")
        await until(
            harness.dsn, "bool_or(epoch >= 3) FROM runs WHERE question = 'gated by the new?'"
        )
        await serves(old_client, "good at the old, later?")
        (row,) = await fetch(
            harness.dsn, "SELECT finished_at FROM runs WHERE question = 'gated by the new?'"
        )
        assert row["finished_at"] is None
    async with version(harness, newer):
        await until(harness.dsn, "bool_and(finished_at IS NOT NULL) FROM runs", within_s=120)
    end = await ended_once(harness.dsn, "gated by the new?")
    assert end.run_finished.response.status == RUN_STATUS_SUCCEEDED
