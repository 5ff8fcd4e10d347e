"""Tokens of the day for dry runs: counted after planning, and bound as those of runs are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import date, timedelta
from typing import Any

import asyncpg
import grpc
import pytest
from gateway_harness.admission import AS_ANNA, as_account
from gateway_harness.harness import Harness

from bos.common.v1 import Usage
from bos.gateway.v1 import AgentRequest, PlanQuestionRequest
from bos_chassis.auth.callers import LOCAL_USER
from bos_errors import from_rpc_error
from bos_gateway.admission import daily_quota
from bos_gateway.admission.daily_quota import DayBudget, DayLimit
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import migrate_store
from bos_gateway.settings import GatewaySettings
from bos_postgres import connect, fetchval, open_database
from bos_testkit.agents import EchoAgent
from bos_testkit.plans import step

PLAN = PlanQuestionRequest(request=AgentRequest(question="What would you do?"))


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    await migrate_store(postgres_dsn)
    async with open_database(postgres_dsn, schema=SCHEMA, max_size=8) as pool:
        yield pool


def bounded(pool: Any, **bounds: int) -> DayBudget:
    settings = GatewaySettings.load(
        store_url="postgresql://bos@127.0.0.1/bos",
        planner_target="127.0.0.1:1",
        composer_target="127.0.0.1:1",
        agent_targets={},
        max_run_tokens=8000,
        **bounds,
    )
    return DayBudget(pool, settings)


async def days(connection: Any) -> dict[str, int]:
    rows = await connection.fetch("SELECT user_id, tokens FROM token_days")
    return {row["user_id"]: row["tokens"] for row in rows}


async def test_what_was_consumed_takes_the_place_of_what_was_held(pool: Any) -> None:
    async with bounded(pool, max_user_day_tokens=10_000).planning("anna") as held:
        assert held.tokens == 2000
        assert await days(pool) == {"anna": 2000, "": 2000}  # also for other gateways
        held.usage = Usage(input_tokens=300, output_tokens=20)
    assert await days(pool) == {"anna": 320, "": 320}


async def test_what_its_caller_does_not_wait_for_counts_in_full(pool: Any) -> None:
    begun = asyncio.Event()

    async def plan() -> None:
        async with bounded(pool, max_user_day_tokens=10_000).planning("anna"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(plan())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await days(pool) == {"anna": 2000, "": 2000}


async def test_bound_is_kept_by_many_at_once(pool: Any) -> None:
    tokens = bounded(pool, max_user_day_tokens=9000, max_day_tokens=20_000)

    async def one(user: str) -> int | None:
        try:
            async with tokens.planning(user) as held:
                return held.tokens
        except DayLimit:
            return None

    got = await asyncio.gather(*(one(user) for user in ["anna"] * 8 + ["ben"] * 8))
    assert sorted(filter(None, got[:8])) == [1000, 2000, 2000, 2000, 2000]
    assert await days(pool) == {"anna": 9000, "ben": 9000, "": 18_000}


async def test_it_counts_for_the_day_on_which_it_began(
    pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def yesterday(*arguments: Any) -> date:
        day: date = await fetchval(*arguments)
        await pool.execute("UPDATE token_days SET day = day - 1")
        return day - timedelta(days=1)

    monkeypatch.setattr(daily_quota, "fetchval", yesterday)
    async with bounded(pool, max_user_day_tokens=10_000).planning("anna") as held:
        held.usage = Usage(input_tokens=300)
    assert await days(pool) == {"anna": 300, "": 300}


async def test_less_than_is_worth_asking_with_is_refused(pool: Any) -> None:
    tokens = bounded(pool, max_day_tokens=2999)
    async with tokens.planning("anna"):
        pass
    with pytest.raises(DayLimit) as caught:
        async with tokens.planning("ben"):
            pytest.fail("999 tokens are left")
    assert caught.value.left == 999
    assert caught.value.reason == "DAY_LIMIT"


async def test_anonymous_caller_has_the_total_day_limit_alone(pool: Any) -> None:
    async with bounded(pool, max_user_day_tokens=1000).planning(LOCAL_USER) as held:
        assert held.tokens == 2000
    assert await days(pool) == {}
    async with bounded(pool, max_user_day_tokens=1000, max_day_tokens=9000).planning(LOCAL_USER):
        pass
    assert (await days(pool))[""] == 2000


async def test_user_hears_why_there_is_no_plan(harness: Harness) -> None:
    await harness.add_agent(EchoAgent())
    harness.planner.steps = [step("a", "echo")]
    bounds: dict[str, Any] = {"max_run_tokens": 20_000, "max_user_day_tokens": 20_000}
    async with harness.gateway(auth=as_account(), **bounds) as gateway:
        async with connect(harness.dsn, schema=SCHEMA) as connection:
            await connection.execute(
                "INSERT INTO token_days VALUES ((now() AT TIME ZONE 'UTC')::date, 'anna', 17000)"
            )
            await gateway.stub.PlanQuestion(PLAN, metadata=AS_ANNA, timeout=30)
            await connection.execute("UPDATE token_days SET tokens = 19001")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.stub.PlanQuestion(PLAN, metadata=AS_ANNA, timeout=30)
        assert gateway.metric("bos_runs_refused_total", reason="day_limit") == 1
    error = from_rpc_error(caught.value)
    assert error.reason == "USER_DAY_LIMIT"
    assert len(harness.planner.requests) == 1
    assert harness.planner.requests[0].token_budget == 3000
