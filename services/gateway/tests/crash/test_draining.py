"""Draining: a gateway ends on SIGTERM, in any state of the database and its callers."""

import asyncio
import socket

import pytest
from gateway_harness.harness import Harness, gateway_process
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.stored import fetch, fetchval, until
from gateway_harness.traced import RUN

from bos.gateway.v1 import AgentRequest, PlanQuestionRequest
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.otlp.spans import span_receiver

_END_S = 40.0


async def test_drain_ends_while_postgresql_is_away(harness: Harness) -> None:
    slow = await harness.plan(SlowAgent("slow"))
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
    await harness.plan(EchoAgent("pure"))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def held() -> None:
        asked.set()
        await go_on.wait()

    harness.planner.before = held
    async with gateway_process(harness, server__grace_s=30) as (process, client):
        request = PlanQuestionRequest(request=AgentRequest(question="Go on?"))
        call = asyncio.ensure_future(client.stub.PlanQuestion(request, timeout=40))
        await asked.wait()
        process.terminate()
        await until(harness.dsn, "count(*) = 0 FROM replicas")
        for _ in range(3):  # renewals that find no lease of their own
            sent = (
                "coalesce(max(query_start), '-infinity') FROM pg_stat_activity "
                "WHERE query LIKE '%lease_until%' "
                "AND application_name LIKE 'bos-gateway-lease%'"
            )
            last = await fetchval(harness.dsn, f"SELECT {sent}")
            await until(harness.dsn, f"(SELECT {sent}) > $1", last)
        go_on.set()
        assert [each.agent for each in (await call).plan.steps] == ["pure"]
        assert await asyncio.wait_for(process.wait(), _END_S) == 0


@pytest.mark.parametrize("answers", [True, False], ids=["collector", "collector that hangs"])
async def test_drained_gateway_exports_traces_and_leaves_no_lease(
    harness: Harness, answers: bool
) -> None:
    await harness.plan(EchoAgent("pure"))
    with span_receiver() as receiver, socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = f"http://127.0.0.1:{silent.getsockname()[1]}"
        endpoint = receiver.endpoint if answers else hanging
        exporting = gateway_process(harness, telemetry__otlp_endpoint=endpoint)
        async with exporting as (process, client):
            await client.ask("Go on?")
            process.terminate()
            assert await asyncio.wait_for(process.wait(), _END_S) == 0
            rows = await fetch(harness.dsn, "SELECT lease_until <= now() FROM replicas")
            left = [left_to_others for (left_to_others,) in rows]
        assert left == ([] if answers else [True])
        assert bool([span for span in receiver.spans if span.name == RUN]) is answers
