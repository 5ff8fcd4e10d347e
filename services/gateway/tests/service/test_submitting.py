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
from bos_testkit.agents import SlowAgent
from bos_testkit.waiting import eventually

# Longer than any wait, so that a call that should return and does not fails by its own deadline.
LONGEST_S, DEADLINE_S = 60, 30


async def submit(gateway: Client, question: str = "What is new?", **request: Any) -> Run:
    message = SubmitRunRequest(request=AgentRequest(question=question, **request))
    return (await gateway.call(message)).run


async def look_up(
    gateway: Client, run_id: str, wait_s: float = 0, after_sequence: int | None = None
) -> Run:
    request = GetRunRequest(run_id=run_id, after_sequence=after_sequence)
    if wait_s:
        request.wait.FromMilliseconds(round(wait_s * 1000))
    return (await gateway.call(request, timeout_s=DEADLINE_S)).run


async def until(gateway: Client, run_id: str, status: int) -> Run:
    found = await look_up(gateway, run_id)
    async with asyncio.timeout(60):
        while found.status != status:
            assert not found.HasField("response"), found.response
            found = await look_up(gateway, run_id, LONGEST_S, found.last_sequence)
    return found


@pytest.fixture
async def slow(harness: Harness) -> SlowAgent:
    return await harness.plan(SlowAgent("slow"))


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
        # It is not waited for any more.
        for after in (ended.last_sequence, ended.last_sequence + 7):
            assert await look_up(gateway, submitted.run_id, LONGEST_S, after) == ended
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
    await harness.plan_deployment()
    async with harness.gateway() as gateway:
        submitted = await submit(gateway, "Deploy?")
        assert await until(gateway, submitted.run_id, RUN_STATUS_WAITING_FOR_APPROVAL)


async def test_wait_ends_with_the_next_event_behind_what_is_known_or_with_the_time(
    harness: Harness, slow: SlowAgent
) -> None:
    async with harness.gateway() as gateway:
        run_id = (await submit(gateway)).run_id
        known = (await until(gateway, run_id, RUN_STATUS_EXECUTING)).last_sequence
        for after in (None, known):
            found = await look_up(gateway, run_id, 0.2, after)
            assert not found.HasField("response")
            assert found.last_sequence == known
        waiting = asyncio.create_task(look_up(gateway, run_id, LONGEST_S, after_sequence=known))
        behind = await look_up(gateway, run_id, LONGEST_S, after_sequence=known - 1)
        assert behind.last_sequence == known
        slow.release.set()
        assert (await waiting).last_sequence > known


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
