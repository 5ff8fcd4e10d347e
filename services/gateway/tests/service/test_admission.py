"""How many runs and streams are admitted: per user over all replicas, and per replica."""

import asyncio

import grpc
import pytest
from gateway_harness.admission import AS_ANNA, as_account, run_of, writers
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness
from gateway_harness.stored import fetch
from google.protobuf.duration_pb2 import Duration

from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    GetRunRequest,
    ListRunsRequest,
)
from bos.planner.v1 import MakePlanResponse
from bos.runlog.v1 import LogEvent, RunFinished
from bos_errors import ResourceExhausted, from_rpc_error
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.writer import LogWriter, UserLimit
from bos_testkit.agents import SlowAgent
from bos_testkit.waiting import eventually


async def accept_all(logs: list[LogWriter], runs: list[NewRun]) -> list[bool | BaseException]:
    """Accept the runs at once, each by the next of the writers."""
    accepts = [logs[i % len(logs)].accept(run) for i, run in enumerate(runs)]
    return await asyncio.gather(*accepts, return_exceptions=True)


async def test_user_run_limit_is_exact_over_concurrent_replicas(store: str) -> None:
    users = [f"user-{n}" for n in range(5)]
    async with writers(store, 4) as logs:
        runs = [run_of(users[i % 5], active=3) for i in range(100)]
        outcomes = await accept_all(logs, runs)
    for user in users:
        of_user = [o for o, run in zip(outcomes, runs, strict=True) if run.user_id == user]
        assert of_user.count(True) == 3
        assert sum(isinstance(outcome, UserLimit) for outcome in of_user) == 17


@pytest.mark.parametrize(("waiting", "accepted"), [(2, True), (1, False)])
async def test_runs_that_wait_for_approval_have_bound_of_their_own(
    store: str, waiting: int, accepted: bool
) -> None:
    async with writers(store, 1) as (log,):
        await log.accept(run_of("anna"))
        await fetch(store, "UPDATE runs SET status = $1", RUN_STATUS_WAITING_FOR_APPROVAL)
        (outcome,) = await accept_all([log], [run_of("anna", active=1, waiting=waiting)])
    assert (outcome is True) is accepted
    assert isinstance(outcome, UserLimit) is not accepted


async def test_repetitions_take_one_place_until_their_run_ends(store: str) -> None:
    async with writers(store, 2) as (log, other):
        runs = [run_of("anna", request_id="same", active=1) for _ in range(3)]
        outcomes = await accept_all([log], runs)
        assert sorted(outcomes, key=str) == [False, False, True]
        assert not await other.accept(run_of("anna", request_id="same", active=1))
        with pytest.raises(UserLimit):
            await log.accept(run_of("anna", request_id="another", active=1))
        (run_id,) = [run.run_id for run, done in zip(runs, outcomes, strict=True) if done is True]
        end = LogEvent(run_finished=RunFinished())
        await log.append(Append(run_id, 1, 2, [end], status=RUN_STATUS_SUCCEEDED, finished=True))
        assert await log.accept(run_of("anna", request_id="another", active=1))


async def test_user_limit_has_a_retry_time_and_spares_repetitions(harness: Harness) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway(auth=as_account(), max_active_runs_per_user=1) as gateway:
        anna = gateway.by(AS_ANNA)
        running = asyncio.create_task(anna.ask(request_id="first"))
        await slow.started.wait()
        error = await refusal(anna.ask(request_id="second"))
        repeated = asyncio.create_task(anna.ask(request_id="first"))
        slow.release.set()
        assert (await repeated).run_id == (await running).run_id
        await anna.ask(request_id="second")
    assert (type(error), error.reason) == (ResourceExhausted, "USER_LIMIT")
    assert error.retry_after_s


async def test_callers_without_account_are_bounded_by_replica_alone(harness: Harness) -> None:
    async with harness.gateway(max_active_runs_per_user=1) as gateway:
        responses = await asyncio.gather(*(gateway.ask() for _ in range(5)))
    assert len({response.run_id for response in responses}) == 5


async def test_concurrent_replies_respect_the_replica_limit(harness: Harness) -> None:
    asked = Clarification(questions=[ClarifyingQuestion(question="Which year?")])
    harness.planner.answer = MakePlanResponse(clarification=asked)
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway(max_active_runs=2) as gateway:
        asking = (await gateway.ask()).run_id
        harness.planner.answer = None
        replies = [asyncio.create_task(gateway.ask(continues_run_id=asking)) for _ in range(8)]
        await eventually(lambda: sum(task.done() for task in replies) == 6)
        slow.release.set()
        outcomes = await asyncio.gather(*replies, return_exceptions=True)
    refused = [from_rpc_error(each) for each in outcomes if isinstance(each, grpc.RpcError)]
    assert [error.reason for error in refused] == ["REPLICA_FULL"] * 6
    assert all(error.retry_after_s for error in refused)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"max_streams": 1}, "REPLICA_FULL"), ({"max_streams_per_user": 1}, "USER_STREAM_LIMIT")],
)
async def test_full_streams_are_refused_and_run_can_still_be_cancelled(
    harness: Harness, bounds: dict[str, int], reason: str
) -> None:
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway(auth=as_account(), **bounds) as anyone:
        gateway = anyone.by(AS_ANNA)
        running = asyncio.create_task(gateway.events())
        await slow.started.wait()
        (run,) = (await gateway.call(ListRunsRequest())).runs
        waiting = GetRunRequest(run_id=run.run_id, wait=Duration(seconds=60))
        for call in (
            gateway.ask(),
            gateway.events(),
            gateway.watch("0" * 8),
            gateway.call(waiting),
        ):
            error = await refusal(call)
            assert (type(error), error.reason) == (ResourceExhausted, reason)
            assert error.retry_after_s == 1.0
        await gateway.cancel(run.run_id)
        assert (await running)[-1].HasField("run_finished")
        # Its room is there again.
        assert await gateway.watch(run.run_id)
