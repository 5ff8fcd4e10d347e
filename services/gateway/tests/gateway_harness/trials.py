"""What trials share: agents, planners and composers that misbehave, in front of real gateways.

A trial is a way to break the contract of runs from outside, tried with gateway processes as they
are deployed. What the doubles here send was never checked by agentkit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import asyncpg
import grpc

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
    ExecuteResponse,
)
from bos.gateway.v1 import GetRunRequest, Run
from bos.planner.v1 import Step
from bos.runlog.v1 import LogEvent
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.forked import ForkedProcess
from gateway_harness.crash.harness import replica_process
from gateway_harness.harness import Client, Harness
from gateway_harness.raw_agents import RawAgent, add_raw_agent

# As deployed: gateway_settings() shortens the lease for tests that wait for it to run out.
DEFAULT_LEASE = {"lease_s": 3, "lease_renewal_s": 1}
# A step that a test holds back ends when the test says so, not when its card does.
HELD_STEP_S = 600.0


def succeeded(answer: str = "fine") -> AgentResult:
    """A result with nothing wrong about it."""
    return AgentResult(status=AGENT_EXECUTION_STATUS_SUCCEEDED, answer=answer)


async def add_raw(
    harness: Harness,
    name: str,
    make: Callable[[Any], Awaitable[AgentResult]] | None = None,
    **card: Any,
) -> RawAgent:
    """Serve an agent that returns what ``make`` returns, unchecked; without it one that behaves."""

    async def behave(context: Any) -> AsyncIterator[ExecuteResponse]:
        yield ExecuteResponse(result=await make(context) if make else succeeded())

    agent = RawAgent(name, behave, capabilities=[name], **card)
    return await add_raw_agent(harness, agent)


async def served(harness: Harness, servicer: object, add: Callable[..., None], name: str) -> str:
    """Serve a double for as long as the harness is open; its address."""
    server = grpc_server(
        ServerSettings.load(grace_s=0.1),
        [Servicer(servicer, add, name)],
        telemetry=harness.telemetry,
    )
    return (await harness.stack.enter_async_context(server)).address


def plan_by_question(harness: Harness, plans: Mapping[str, list[Step]]) -> None:
    """Give each question the plan of the first of these words that is in it; the last is for all.

    Questions that are asked at the same time need plans of their own.
    """
    last = list(plans)[-1]

    async def choose() -> None:
        question = harness.planner.requests[-1].question
        harness.planner.steps = plans[next((word for word in plans if word in question), last)]

    harness.planner.before = choose


@asynccontextmanager
async def replica(
    harness: Harness, **overrides: object
) -> AsyncIterator[tuple[ForkedProcess, Client, UUID]]:
    """A gateway process with the default lease whose replica id is known."""
    async with replica_process(harness, **{**DEFAULT_LEASE, **overrides}) as gateway:
        yield gateway.process, gateway.client, gateway.replica_id


async def fetch(harness: Harness, sql: str, *arguments: object) -> list[asyncpg.Record]:
    """Rows, as the gateways' own role sees them."""
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        rows: list[asyncpg.Record] = await connection.fetch(sql, *arguments)
        return rows


async def until(harness: Harness, condition: str, *arguments: object, within_s: float = 60) -> None:
    """Wait until an SQL expression is true."""
    async with asyncio.timeout(within_s), connect(harness.dsn, schema=SCHEMA) as connection:
        while not await connection.fetchval(f"SELECT {condition}", *arguments):
            await connection.execute("SELECT pg_sleep(0.02)")


async def log_of(harness: Harness, question: str) -> list[LogEvent]:
    """The stored events of the one run with this question; each of them can be read."""
    rows = await fetch(
        harness,
        "SELECT e.sequence, e.payload FROM run_events AS e JOIN runs AS r USING (run_id) "
        "WHERE r.question = $1 ORDER BY e.sequence",
        question,
    )
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    return [LogEvent.FromString(row["payload"]) for row in rows]


async def ended_once(harness: Harness, question: str) -> LogEvent:
    """The one end of the run with this question: its last event, and said so in its row."""
    log = await log_of(harness, question)
    ends = [event for event in log if event.HasField("run_finished")]
    assert len(ends) == 1, [event.WhichOneof("event") for event in log]
    assert ends[0] is log[-1]
    (row,) = await fetch(
        harness, "SELECT status, finished_at FROM runs WHERE question = $1", question
    )
    assert row["finished_at"] is not None
    assert row["status"] == ends[0].run_finished.response.status
    return ends[0]


async def readable(client: Client, run_id: str) -> Run:
    """The run, by every way in which clients read it."""
    run: Run = (await client.stub.GetRun(GetRunRequest(run_id=run_id), timeout=30)).run
    events = await client.watch(run_id)
    assert events[-1].HasField("run_finished")
    return run


async def code_of(call: Any) -> grpc.StatusCode:
    """The status of a call: OK, or that of its error."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK
