"""Tokens of a day, per user and for everybody: exact over all replicas, settled by a run's end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc
import pytest
from admission_house import AS_ANNA, as_account, execute, writers

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Usage
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskRequest,
    CancelRunRequest,
    OrchestratorResponse,
    ResponseMetadata,
    WatchRunRequest,
)
from bos.runlog.v1 import LogEvent, RunAccepted, RunFinished, RunSettings
from bos_chassis.errors import ConfigurationError, ResourceExhausted, from_rpc_error
from bos_gateway import day_budget
from bos_gateway.budget import freeze_shares
from bos_gateway.day_budget import DayBound, DayLimit
from bos_gateway.retention import Scope, erase, forget_days
from bos_gateway.run_log import SCHEMA, Append, NewRun, UserLimit
from bos_gateway.service import MIGRATIONS, new_run_id
from bos_gateway.settings import GatewaySettings
from bos_postgres import connect, migrate
from bos_testkit.agents import RecordingAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from gateway_house import House

    from bos_agentkit import AgentTask


@pytest.fixture
async def store(postgres_dsn: str) -> str:
    await migrate(postgres_dsn, MIGRATIONS, schema=SCHEMA)
    return postgres_dsn


def run_of(
    user: str, tokens: int, request_id: str = "", *, mine: int = 0, all_: int = 0, active: int = 0
) -> NewRun:
    run_id = new_run_id()
    accepted = RunAccepted(user_id=user, settings=RunSettings(max_tokens=tokens))
    return NewRun(
        run_id,
        user,
        request_id or str(run_id),
        b"digest",
        "",
        "What?",
        LogEvent(run_accepted=accepted),
        max_active=active,
        max_user_day_tokens=mine,
        max_day_tokens=all_,
    )


def end_of(run: NewRun, tokens: int | None) -> Append:
    response = OrchestratorResponse()
    if tokens is not None:
        usage = Usage(input_tokens=tokens - 30, output_tokens=20, unreported_tokens=10)
        response.metadata.CopyFrom(ResponseMetadata(usage=usage, max_tokens=day_budget.held(run)))
    return Append(
        run.run_id,
        1,
        2,
        [LogEvent(run_finished=RunFinished(response=response))],
        durable=True,
        status=RUN_STATUS_SUCCEEDED,
        finished=True,
    )


async def days(store: str) -> dict[str, int]:
    """Tokens by user, of everybody under the empty name, over all days."""
    async with connect(store, schema=SCHEMA) as connection:
        rows = await connection.fetch("SELECT user_id, sum(tokens)::int FROM token_days GROUP BY 1")
    return dict(map(tuple, rows))


async def of_runs(store: str) -> int:
    """What the rows of the runs say, added up."""
    async with connect(store, schema=SCHEMA) as connection:
        total: int = await connection.fetchval("SELECT coalesce(sum(day_tokens), 0)::int FROM runs")
    return total


async def test_bound_of_a_user_is_exact_also_when_replicas_accept_at_once(store: str) -> None:
    users = [f"user-{n}" for n in range(4)]
    async with writers(store, 4) as logs:
        runs = [run_of(users[i % 4], 10_000, mine=35_000) for i in range(80)]
        outcomes = await asyncio.gather(
            *(day_budget.accept(logs[i % 4], run) for i, run in enumerate(runs)),
            return_exceptions=True,
        )
    stored = await days(store)
    for user in users:
        of_user = [o for o, run in zip(outcomes, runs, strict=True) if run.user_id == user]
        held = [day_budget.held(o) for o in of_user if isinstance(o, NewRun)]
        assert sorted(held) == [5000, 10_000, 10_000, 10_000]  # the last one got what was left
        assert sum(isinstance(outcome, DayLimit) for outcome in of_user) == 16
        assert stored[user] == 35_000
    assert stored[""] == await of_runs(store) == 140_000


async def test_bound_of_everybody_is_exact_also_when_replicas_accept_at_once(store: str) -> None:
    async with writers(store, 4) as logs:
        runs = [run_of(f"user-{i % 7}", 10_000, all_=55_000) for i in range(60)]
        outcomes = await asyncio.gather(
            *(day_budget.accept(logs[i % 4], run) for i, run in enumerate(runs)),
            return_exceptions=True,
        )
    held = [day_budget.held(o) for o in outcomes if isinstance(o, NewRun)]
    assert sorted(held) == [5000, *[10_000] * 5]
    assert (await days(store))[""] == await of_runs(store) == 55_000


async def test_one_user_does_not_use_up_anothers_day(store: str) -> None:
    async with writers(store, 1) as (log,):
        assert await log.accept(run_of("anna", 10_000, mine=10_000))
        with pytest.raises(DayLimit) as caught:
            await log.accept(run_of("anna", 10_000, mine=10_000))
        assert await log.accept(run_of("berta", 10_000, mine=10_000))
    assert caught.value.left == 0
    assert caught.value.of_all is None
    assert 0 < caught.value.resets_in_s <= 86_400


async def test_the_lower_of_both_bounds_counts(store: str) -> None:
    async with writers(store, 1) as (log,):
        await log.accept(run_of("anna", 20_000, mine=100_000, all_=30_000))
        with pytest.raises(DayLimit) as caught:
            await log.accept(run_of("berta", 20_000, mine=100_000, all_=30_000))
    assert caught.value.left == 10_000
    assert caught.value.of_user is not None
    assert caught.value.of_user.left == 100_000


@pytest.mark.parametrize(("left", "stored"), [(5000, 5000), (4999, None)])
async def test_a_run_gets_what_is_left_if_that_is_worth_beginning_with(
    store: str, left: int, stored: int | None
) -> None:
    async with writers(store, 1) as (log,):
        await log.accept(run_of("anna", 20_000, mine=20_000 + left))
        run = run_of("anna", 20_000, mine=20_000 + left)
        if stored is None:
            with pytest.raises(DayLimit):
                await day_budget.accept(log, run)
        else:
            accepted = await day_budget.accept(log, run)
            assert accepted is not None
            assert day_budget.held(accepted) == stored
            assert day_budget.held(run) == 20_000
            async with connect(store, schema=SCHEMA) as connection:
                payload = await connection.fetchval(
                    "SELECT payload FROM run_events WHERE run_id = $1", run.run_id
                )
            frozen = LogEvent.FromString(payload).run_accepted
            assert frozen.settings.max_tokens == stored


async def test_end_of_a_run_frees_what_it_did_not_consume(store: str) -> None:
    async with writers(store, 2) as (log, other):
        first = run_of("anna", 10_000, mine=10_000)
        await log.accept(first)
        with pytest.raises(DayLimit):
            await other.accept(run_of("anna", 5000, mine=10_000))
        end = end_of(first, 3000)
        await log.append(end)
        await log.append(end)  # as after an answer that was lost: nothing is settled twice
        assert await days(store) == {"anna": 3000, "": 3000}
        assert await other.accept(run_of("anna", 7000, mine=10_000))
    assert await days(store) == {"anna": 10_000, "": 10_000}
    assert await of_runs(store) == 10_000


async def test_a_run_that_consumed_more_than_it_held_counts_with_all_of_it(store: str) -> None:
    async with writers(store, 1) as (log,):
        first = run_of("anna", 10_000, mine=10_000)
        await log.accept(first)
        await log.append(end_of(first, 12_000))
        with pytest.raises(DayLimit) as caught:
            await log.accept(run_of("anna", 1000, mine=10_000))
    assert caught.value.left == -2000


async def test_an_end_that_says_nothing_counts_with_all_that_was_held(store: str) -> None:
    async with writers(store, 1) as (log,):
        first = run_of("anna", 10_000, mine=10_000)
        await log.accept(first)
        await log.append(end_of(first, None))
    assert await days(store) == {"anna": 10_000, "": 10_000}


async def test_the_next_day_begins_with_nothing_and_a_run_counts_for_its_own(store: str) -> None:
    async with writers(store, 1) as (log,):
        first = run_of("anna", 10_000, mine=10_000)
        await log.accept(first)
        # Midnight passes.
        await execute(store, "UPDATE token_days SET day = day - 1")
        await execute(store, "UPDATE runs SET token_day = token_day - 1")
        assert await log.accept(run_of("anna", 10_000, mine=10_000))
        await log.append(end_of(first, 3000))
    async with connect(store, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT tokens FROM token_days WHERE user_id = 'anna' ORDER BY day"
        )
    assert [row["tokens"] for row in rows] == [3000, 10_000]


async def test_a_request_that_is_repeated_is_not_charged_twice(store: str) -> None:
    async with writers(store, 2) as logs:
        assert await logs[0].accept(run_of("anna", 10_000, "same", mine=10_000))
        assert not await logs[1].accept(run_of("anna", 10_000, "same", mine=10_000))
        racing = [run_of("berta", 1000, "racing", mine=10_000) for _ in range(8)]
        outcomes = await asyncio.gather(*(logs[i % 2].accept(r) for i, r in enumerate(racing)))
    assert outcomes.count(True) == 1
    assert await days(store) == {"anna": 10_000, "berta": 1000, "": 11_000}


async def test_a_run_refused_for_its_number_holds_no_tokens(store: str) -> None:
    async with writers(store, 1) as (log,):
        assert await log.accept(run_of("anna", 1000, mine=10_000, active=1))
        with pytest.raises(UserLimit):
            await log.accept(run_of("anna", 1000, mine=10_000, active=1))
    assert await days(store) == {"anna": 1000, "": 1000}


async def test_without_bounds_nothing_is_kept(store: str) -> None:
    async with writers(store, 1) as (log,):
        run = run_of("anna", 10_000)
        await log.accept(run)
        await log.append(end_of(run, 3000))
    assert await days(store) == {}
    assert await of_runs(store) == 0


class Spender(RecordingAgent):
    """Says that it consumed some tokens."""

    def __init__(self, tokens: int) -> None:
        super().__init__("echo")
        self._tokens = tokens

    async def behave(self, task: AgentTask) -> AgentResult:
        usage = Usage(input_tokens=self._tokens - 100, output_tokens=100)
        return AgentResult(status=AGENT_EXECUTION_STATUS_SUCCEEDED, answer="done", usage=usage)


async def test_user_hears_what_was_used_what_may_be_and_when_it_begins_anew(house: House) -> None:
    await house.add_agent(Spender(9000))
    house.planner.steps = [step("a", "echo")]
    bounds = {"max_run_tokens": 20_000, "max_user_day_tokens": 10_000}
    async with house.gateway(auth=as_account(), **bounds) as gateway:
        request = AskRequest(request=AgentRequest(question="What?"))
        first = (await gateway.stub.Ask(request, metadata=AS_ANNA)).response
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.stub.Ask(request, metadata=AS_ANNA)
        assert gateway.metric("bos_runs_refused_total", reason="day_limit") == 1
    used = first.metadata.usage
    spent = used.input_tokens + used.output_tokens + used.unreported_tokens
    assert spent >= 9000
    assert first.metadata.max_tokens == 10_000  # lowered to what the day allows
    error = from_rpc_error(caught.value)
    assert isinstance(error, ResourceExhausted)
    assert error.reason == "USER_DAY_LIMIT"
    assert error.metadata["used_tokens"] == str(spent)
    assert error.metadata["limit_tokens"] == "10000"
    assert error.metadata["reset_time"].endswith("T00:00:00Z")
    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= 86_400
    assert await days(house.dsn) == {"anna": spent, "": spent}


async def test_bound_of_everybody_holds_for_those_without_an_account_and_tells_no_numbers(
    house: House,
) -> None:
    await house.add_agent(Spender(9000))
    house.planner.steps = [step("a", "echo")]
    bounds = {"max_run_tokens": 10_000, "max_day_tokens": 10_000, "max_user_day_tokens": 1}
    async with house.gateway(**bounds) as gateway:
        await gateway.ask()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask()
    error = from_rpc_error(caught.value)
    assert error.reason == "DAY_LIMIT"
    assert set(error.metadata) == {"reset_time"}


@pytest.mark.parametrize(
    ("mine", "of_all", "reason"),
    [(5, 4, "DAY_LIMIT"), (5, 5, "USER_DAY_LIMIT"), (5, None, "USER_DAY_LIMIT")],
)
def test_who_is_told_numbers_is_told_their_own(mine: int, of_all: int | None, reason: str) -> None:
    everybody = None if of_all is None else DayBound(900, of_all)
    limit = DayLimit(DayBound(100, mine), everybody, 60.0)
    error = day_budget.day_limit(limit, datetime(2026, 6, 15, 23, 59, tzinfo=UTC))
    assert error.reason == reason
    assert ("95 of the 100" in error.message) == (reason == "USER_DAY_LIMIT")
    assert "900" not in error.message
    assert error.metadata["reset_time"] == "2026-06-16T00:00:00Z"


async def test_a_run_that_is_cancelled_frees_what_it_did_not_hold_for_work(house: House) -> None:
    slow = SlowAgent("echo")
    await house.add_agent(slow)
    house.planner.steps = [step("a", "echo")]
    bounds = {"max_run_tokens": 20_000, "max_user_day_tokens": 20_000}
    async with house.gateway(auth=as_account(), **bounds) as gateway:
        request = AskRequest(request=AgentRequest(question="What?"))
        asked = gateway.stub.Ask(request, metadata=AS_ANNA)
        await eventually(lambda: len(slow.inputs) == 1)
        assert (await days(house.dsn))["anna"] == 20_000
        async with connect(house.dsn, schema=SCHEMA) as connection:
            run_id = str(await connection.fetchval("SELECT run_id FROM runs"))
        await gateway.stub.CancelRun(CancelRunRequest(run_id=run_id), metadata=AS_ANNA)
        response = (await asked).response
    used = response.metadata.usage
    spent = used.input_tokens + used.output_tokens + used.unreported_tokens
    assert spent < 20_000
    assert await days(house.dsn) == {"anna": spent, "": spent}


async def test_a_run_of_a_dead_gateway_holds_its_tokens_until_another_one_ends_it(
    house: House,
) -> None:
    await house.add_agent(Spender(2000))
    house.planner.steps = [step("a", "echo")]
    run = run_of("anna", 20_000, mine=30_000)
    accepted = run.event.run_accepted
    accepted.request.question = "What?"
    accepted.settings.max_concurrency = accepted.settings.max_steps = 4
    accepted.settings.plan_timeout.FromSeconds(10)
    accepted.settings.compose_timeout.FromSeconds(10)
    freeze_shares(accepted.settings)
    accepted.deadline.GetCurrentTime()
    accepted.deadline.seconds += 100
    run.event.create_time.GetCurrentTime()
    await migrate(house.dsn, MIGRATIONS, schema=SCHEMA)
    async with writers(house.dsn, 1) as (log,):
        await log.accept(run)  # and then it dies
    assert (await days(house.dsn))["anna"] == 20_000
    async with house.gateway(auth=as_account()) as gateway:  # also one without the setting
        watched = gateway.stub.WatchRun(
            WatchRunRequest(run_id=str(run.run_id)), metadata=AS_ANNA, timeout=60
        )
        async for _ in watched:
            pass  # until its end
    spent = (await days(house.dsn))["anna"]
    assert 0 < spent < 20_000
    assert spent == await of_runs(house.dsn)


async def test_erasing_a_user_gives_nothing_back_of_today_and_forgets_earlier_days(
    store: str,
) -> None:
    async with writers(store, 1) as (log,):
        for tokens in (4000, 3000):
            run = run_of("anna", 10_000, mine=10_000)
            await log.accept(run)
            await log.append(end_of(run, tokens))
            if tokens == 4000:
                await execute(store, "UPDATE token_days SET day = day - 1")
        async with connect(store, schema=SCHEMA) as session:
            await erase(session, Scope(user_id="anna"))
        assert await days(store) == {"anna": 3000, "": 7000}
        with pytest.raises(DayLimit):
            await log.accept(run_of("anna", 7001, mine=10_000))


async def test_upkeep_forgets_days_that_no_run_can_belong_to_any_more(store: str) -> None:
    async with writers(store, 1) as (log,):
        await log.accept(run_of("anna", 10_000, mine=10_000))
    for back, left in ((40, 2), (41, 0)):
        await execute(
            store,
            "UPDATE token_days SET day = (now() AT TIME ZONE 'UTC')::date - $1::int",
            back,
        )
        async with connect(store, schema=SCHEMA) as session:
            await forget_days(session)
        assert len(await days(store)) == left


@pytest.mark.parametrize("bound", ["max_user_day_tokens", "max_day_tokens"])
def test_a_bound_of_a_day_needs_one_of_a_run(bound: str) -> None:
    needed = {
        "store_url": "postgresql://x/y",
        "planner_target": "p",
        "composer_target": "c",
        "agent_targets": "sql=s",
    }
    with pytest.raises(ConfigurationError, match="BOS_GATEWAY_MAX_RUN_TOKENS"):
        GatewaySettings.load(**needed, **{bound: 1000})
    assert GatewaySettings.load(**needed, max_run_tokens=10, **{bound: 1000})
