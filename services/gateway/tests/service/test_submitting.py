"""Questions that are submitted: stored, answered for at once, and looked up when there is news."""

import asyncio
from typing import Any

import pytest
from gateway_harness.answering import refusal
from gateway_harness.harness import Client, Harness

from bos.gateway.v1 import (
    RUN_STATUS_EXECUTING,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    GetRunRequest,
    Run,
    SubmitRunRequest,
)
from bos_errors import AlreadyExists, InvalidArgument, ResourceExhausted
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

# Longer than any wait, so that a call that should return and does not fails by its own deadline.
LONGEST_S, DEADLINE_S = 60, 30


async def submit(gateway: Client, question: str = "What is new?", **request: Any) -> Run:
    message = SubmitRunRequest(request=AgentRequest(question=question, **request))
    run: Run = (await gateway.stub.SubmitRun(message, timeout=60)).run
    return run


async def look_up(
    gateway: Client, run_id: str, wait_s: float = 0, after_sequence: int | None = None
) -> Run:
    request = GetRunRequest(run_id=run_id, after_sequence=after_sequence)
    if wait_s:
        request.wait.FromMilliseconds(round(wait_s * 1000))
    run: Run = (await gateway.stub.GetRun(request, timeout=DEADLINE_S)).run
    return run


async def until(gateway: Client, run_id: str, status: int) -> Run:
    """The run, once it is in that state."""
    found = await look_up(gateway, run_id)
    async with asyncio.timeout(60):
        while found.status != status:
            assert not found.HasField("response"), found.response
            found = await look_up(gateway, run_id, LONGEST_S, found.last_sequence)
    return found


@pytest.fixture
async def slow(harness: Harness) -> SlowAgent:
    agent = SlowAgent("slow")
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "slow")]
    return agent


@pytest.mark.requirement("A-01", "A-09")
async def test_submitted_run_is_returned_at_once_and_goes_on_detached(
    harness: Harness, slow: SlowAgent
) -> None:
    async with harness.gateway() as gateway:
        submitted = await submit(gateway, "What is new?")
        assert submitted.question == "What is new?"
        assert not submitted.HasField("response")
        await asyncio.wait_for(slow.started.wait(), 60)
        slow.release.set()
        ended = await look_up(gateway, submitted.run_id, LONGEST_S)
    assert ended.response.status == RUN_STATUS_SUCCEEDED
    assert ended.response.answer == "It is done."


async def test_submitting_the_same_request_again_returns_the_same_run(
    harness: Harness, slow: SlowAgent
) -> None:
    async with harness.gateway() as gateway:
        first = await submit(gateway, request_id="r1")
        again = await submit(gateway, request_id="r1")
        refused = await refusal(submit(gateway, "Something else?", request_id="r1"))
        slow.release.set()
        asked = await gateway.ask(request_id="r1")
        ended = await submit(gateway, request_id="r1")
    assert first.run_id == again.run_id == asked.run_id == ended.run_id
    assert isinstance(refused, AlreadyExists)
    assert refused.reason == "REQUEST_ID_REUSED"
    assert ended.response.answer == asked.answer
    assert len(slow.inputs) == 1


async def test_submitted_run_takes_a_place_until_it_ends(harness: Harness, slow: SlowAgent) -> None:
    async with harness.gateway(max_active_runs=1) as gateway:
        submitted = await submit(gateway)
        for call in (submit(gateway), gateway.ask()):
            refused = await refusal(call)
            assert isinstance(refused, ResourceExhausted)
            assert refused.reason == "REPLICA_FULL"
        slow.release.set()
        await look_up(gateway, submitted.run_id, LONGEST_S)
        await eventually(lambda: gateway.metric("bos_runs_active") == 0)
        assert (await submit(gateway)).run_id != submitted.run_id


@pytest.mark.requirement("A-01")
async def test_submitted_run_waits_for_the_approval_of_its_user(harness: Harness) -> None:
    await harness.add_agent(DeployAgent())
    deploying = step("a", "deploy", "deploy shop 1.2")
    deploying.tools.append("trigger_deployment")
    harness.planner.steps = [deploying]
    async with harness.gateway() as gateway:
        submitted = await submit(gateway, "Deploy?")
        assert await until(gateway, submitted.run_id, RUN_STATUS_WAITING_FOR_APPROVAL)


async def test_wait_ends_with_the_time_when_nothing_happens(
    harness: Harness, slow: SlowAgent
) -> None:
    async with harness.gateway() as gateway:
        submitted = await submit(gateway)
        known = (await until(gateway, submitted.run_id, RUN_STATUS_EXECUTING)).last_sequence
        for after in (None, known):
            found = await look_up(gateway, submitted.run_id, 0.2, after)
            assert not found.HasField("response")
            assert found.last_sequence == known
        slow.release.set()


async def test_wait_ends_with_the_next_event_behind_what_is_known(
    harness: Harness, slow: SlowAgent
) -> None:
    harness.planner.steps = [step("a", "slow"), step("b", "slow", depends_on=["a"])]
    async with harness.gateway() as gateway:
        submitted = await submit(gateway)
        known = (await until(gateway, submitted.run_id, RUN_STATUS_EXECUTING)).last_sequence
        waiting = asyncio.create_task(
            look_up(gateway, submitted.run_id, LONGEST_S, after_sequence=known)
        )
        behind = await look_up(gateway, submitted.run_id, LONGEST_S, after_sequence=known - 1)
        assert behind.last_sequence == known
        slow.release.set()
        assert (await waiting).last_sequence > known


async def test_wait_for_a_run_that_has_ended_is_none(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
    async with harness.gateway() as gateway:
        run_id = (await gateway.ask()).run_id
        last = (await look_up(gateway, run_id, LONGEST_S)).last_sequence
        for after in (last, last + 7):
            found = await look_up(gateway, run_id, LONGEST_S, after)
            assert found.response.status == RUN_STATUS_SUCCEEDED


async def test_wait_on_another_replica_ends_with_the_run(harness: Harness, slow: SlowAgent) -> None:
    async with harness.gateway() as one, harness.gateway() as two:
        submitted = await submit(one)
        waiting = asyncio.create_task(look_up(two, submitted.run_id, LONGEST_S))
        await asyncio.wait_for(slow.started.wait(), 60)
        slow.release.set()
        assert (await waiting).response.status == RUN_STATUS_SUCCEEDED


async def test_invalid_questions_and_waits_are_refused_by_field(harness: Harness) -> None:
    async with harness.gateway() as gateway:
        for call, field in (
            (submit(gateway, "x" * 32769), "request.question"),
            (look_up(gateway, "0" * 8, -1), "wait"),
            (look_up(gateway, "0" * 8, 60.001), "wait"),
        ):
            refused = await refusal(call)
            assert isinstance(refused, InvalidArgument)
            assert refused.violations[0].field == field
