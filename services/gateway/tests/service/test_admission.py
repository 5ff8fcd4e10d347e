"""How many runs and streams are admitted: per user over all replicas, and per replica."""

import asyncio
from typing import Any

import grpc
import pytest
from gateway_harness.admission import AS_ANNA, as_account, execute, run_of, writers
from gateway_harness.answering import refusal
from gateway_harness.harness import Client, Harness
from google.protobuf.duration_pb2 import Duration

from bos.common.v1 import Clarification, ClarifyingQuestion
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    AskRequest,
    CancelRunRequest,
    GetRunRequest,
    ListRunsRequest,
)
from bos.planner.v1 import MakePlanResponse
from bos.runlog.v1 import LogEvent, RunFinished
from bos_errors import ResourceExhausted, from_rpc_error
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.writer import LogWriter, UserLimit
from bos_gateway.service import migrate_store
from bos_testkit.agents import SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually


@pytest.fixture
async def store(postgres_dsn: str) -> str:
    await migrate_store(postgres_dsn)
    return postgres_dsn


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
        held = run_of("anna")
        await log.accept(held)
        await execute(
            store,
            "UPDATE runs SET status = $2 WHERE run_id = $1",
            held.run_id,
            RUN_STATUS_WAITING_FOR_APPROVAL,
        )
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


async def ask(gateway: Client, **request: Any) -> Any:
    message = AskRequest(request=AgentRequest(question="What is new?", **request))
    return (await gateway.stub.Ask(message, timeout=30, metadata=AS_ANNA)).response


async def test_user_limit_has_a_retry_time_and_spares_repetitions(
    harness: Harness,
) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway(auth=as_account(), max_active_runs_per_user=1) as gateway:
        running = asyncio.create_task(ask(gateway, request_id="first"))
        await eventually(lambda: len(slow.inputs) == 1)
        error = await refusal(ask(gateway, request_id="second"))
        repeated = asyncio.create_task(ask(gateway, request_id="first"))
        slow.release.set()
        assert (await repeated).run_id == (await running).run_id
        await ask(gateway, request_id="second")
    assert isinstance(error, ResourceExhausted)
    assert error.reason == "USER_LIMIT"
    assert error.retry_after_s


async def test_callers_without_account_are_bounded_by_replica_alone(
    harness: Harness,
) -> None:
    async with harness.gateway(max_active_runs_per_user=1) as gateway:
        slow = SlowAgent("slow")
        await harness.add_agent(slow)
        responses = await asyncio.gather(*(gateway.ask() for _ in range(5)))
    assert len({response.run_id for response in responses}) == 5


async def test_concurrent_replies_respect_the_replica_limit(
    harness: Harness,
) -> None:
    asked = Clarification(questions=[ClarifyingQuestion(question="Which year?")])
    harness.planner.answer = MakePlanResponse(clarification=asked)
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    async with harness.gateway(max_active_runs=2) as gateway:
        asking = (await ask(gateway)).run_id
        harness.planner.answer = None
        harness.planner.steps = [step("a", "slow")]
        replies = [asyncio.create_task(ask(gateway, continues_run_id=asking)) for _ in range(8)]
        await eventually(lambda: sum(task.done() for task in replies) == 6)
        slow.release.set()
        outcomes = await asyncio.gather(*replies, return_exceptions=True)
    refused = [from_rpc_error(each) for each in outcomes if isinstance(each, grpc.RpcError)]
    assert [error.reason for error in refused] == ["REPLICA_FULL"] * 6
    assert all(error.retry_after_s for error in refused)


async def test_full_streams_are_refused_and_run_can_still_be_cancelled(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway(max_streams=1) as gateway:
        running = asyncio.create_task(gateway.events())
        await eventually(lambda: len(slow.inputs) == 1)
        (run,) = (await gateway.stub.ListRuns(ListRunsRequest())).runs
        waiting = GetRunRequest(run_id=run.run_id, wait=Duration(seconds=60))
        for call in (
            gateway.ask(),
            gateway.events(),
            gateway.watch("0" * 8),
            gateway.stub.GetRun(waiting),
        ):
            error = await refusal(call)
            assert isinstance(error, ResourceExhausted)
            assert (error.reason, error.retry_after_s) == ("REPLICA_FULL", 1.0)
        await gateway.stub.CancelRun(CancelRunRequest(run_id=run.run_id))
        assert (await running)[-1].HasField("run_finished")
        # Its room is there again.
        assert await gateway.watch(run.run_id)


async def test_account_that_follows_too_much_is_refused(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway(auth=as_account(), max_streams_per_user=1) as gateway:
        first = asyncio.create_task(ask(gateway))
        await slow.started.wait()
        assert (await refusal(ask(gateway))).reason == "USER_STREAM_LIMIT"
        slow.release.set()
        assert (await first).run_id
