"""Draining: a gateway ends on SIGTERM, in any state of the database and its callers."""

from __future__ import annotations

import asyncio
import socket

import asyncpg
import pytest
from gateway_harness.harness import Harness, gateway_process
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.traced import RUN

from bos.gateway.v1 import AgentRequest, PlanQuestionRequest
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.otlp.spans import span_receiver
from bos_testkit.plans import step

_END_S = 40.0


async def renewals_sent(session: asyncpg.Connection[asyncpg.Record], count: int) -> None:
    """Return once a gateway has tried so often to renew its lease, and found none of its own."""
    while await session.fetchval("SELECT EXISTS (SELECT FROM replicas)"):
        pass
    sent = (
        "SELECT query_start FROM pg_stat_activity WHERE application_name LIKE 'bos-gateway-lease%'"
    )
    seen: set[object] = set()
    while len(seen) <= count:
        seen.add(await session.fetchval(f"{sent} AND query LIKE '%lease_until%'"))


async def test_drain_ends_while_postgresql_is_away(harness: Harness) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with (
        postgres_proxy(harness.dsn) as proxy,
        gateway_process(harness, store_url=proxy.dsn) as (process, client),
    ):
        call = client.stream()
        await call.read()
        await slow.started.wait()
        proxy.cut()
        proxy.drop()
        await asyncio.wait_for(slow.cancelled.wait(), 60)  # its lease is lost
        process.terminate()
        assert await asyncio.wait_for(process.wait(), _END_S) == 0
        call.cancel()


async def test_drain_waits_for_call_although_its_lease_was_given_back(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("pure"))
    harness.planner.steps = [step("a", "pure")]
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        asked.set()
        await go_on.wait()

    harness.planner.before = held
    async with (
        gateway_process(harness, server__grace_s=30) as (process, client),
        connect(harness.dsn, schema=SCHEMA) as session,
    ):
        request = PlanQuestionRequest(request=AgentRequest(question="Go on?"))
        call = asyncio.ensure_future(client.stub.PlanQuestion(request, timeout=40))
        await asked.wait()
        process.terminate()
        async with asyncio.timeout(60):
            await renewals_sent(session, 3)
        go_on.set()
        assert [each.agent for each in (await call).plan.steps] == ["pure"]
        assert await asyncio.wait_for(process.wait(), _END_S) == 0


@pytest.mark.parametrize("answers", [True, False], ids=["collector", "collector that hangs"])
async def test_drained_gateway_exports_traces_and_leaves_no_lease(
    harness: Harness, answers: bool
) -> None:
    await harness.add_agent(EchoAgent("pure"))
    harness.planner.steps = [step("a", "pure")]
    with span_receiver() as receiver, socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}"
        endpoint = receiver.endpoint if answers else hanging
        async with (
            gateway_process(harness, telemetry__otlp_endpoint=endpoint) as (process, client),
            connect(harness.dsn, schema=SCHEMA) as session,
        ):
            await client.ask("Go on?")
            process.terminate()
            assert await asyncio.wait_for(process.wait(), _END_S) == 0
            rows = "SELECT lease_until <= now() AS left_to_others FROM replicas"
            left = [row["left_to_others"] for row in await session.fetch(rows)]
        assert left == ([] if answers else [True])
        assert bool([span for span in receiver.spans if span.name == RUN]) is answers
