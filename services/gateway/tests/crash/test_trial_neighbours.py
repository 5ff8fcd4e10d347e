"""Trials: one run, one agent or one replica in trouble, and all others beside it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_harness.crash.harness import ask_anywhere
from gateway_harness.harness import Client, Harness, gateway_process
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from gateway_harness.run_contract import Seen
from gateway_harness.stored import ended_once, fetch, until

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Value
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskStreamRequest,
    RunEvent,
)
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import EchoAgent
from bos_testkit.plans import step

_OTHERS = 5
_REFERENCED = 250_000
_MOST_MEMORY_KIB = 1024 * 1024
_UNKNOWN = 5000
"""Number of a field that no message has."""


@pytest.fixture(autouse=True)
async def good(harness: Harness) -> None:
    """The agent of all runs but those that a test is about."""
    await harness.plan(EchoAgent("good"))


async def all_succeed(client: Client, turn: str) -> None:
    asked = (client.ask(f"good {turn}/{n}?") for n in range(_OTHERS))
    assert {answer.status for answer in await asyncio.gather(*asked)} == {RUN_STATUS_SUCCEEDED}


async def test_runs_go_on_while_statements_of_another_time_out(harness: Harness) -> None:
    async with gateway_process(harness) as (first, client), gateway_process(harness) as (_, other):
        await client.ask("good, to begin with?")
        for statement in (
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF EXISTS (SELECT FROM gateway.runs WHERE run_id = NEW.run_id "
            "AND question LIKE 'slow%') THEN PERFORM pg_sleep(60); END IF; RETURN NEW; END $$",
            "CREATE TRIGGER slow BEFORE INSERT ON run_events FOR EACH ROW "
            "WHEN (NEW.kind = 'step_finished') EXECUTE FUNCTION slow()",
        ):
            await fetch(harness.dsn, statement)
        stuck = client.stream("slow?")
        await stuck.read()
        # PostgreSQL is at it: nothing can be said about the run any more.
        await until(
            harness.dsn,
            "count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' "
            "AND application_name LIKE 'bos-gateway-writer%'",
        )
        for turn in range(3):
            await all_succeed(client, f"{turn}")
        # Nor does the replica that adopts it stand still.
        first.kill()
        await until(harness.dsn, "bool_and(epoch > 1) FROM runs WHERE question LIKE 'slow%'")
        for turn in range(3):
            await all_succeed(other, f"later {turn}")
        await fetch(harness.dsn, "DROP TRIGGER slow ON run_events")
        stuck.cancel()


@asynccontextmanager
async def transaction_of_maintenance(harness: Harness) -> AsyncIterator[None]:
    """Let the holder of maintenance's advisory lock wait inside its transaction."""
    async with connect(harness.dsn, schema=SCHEMA) as connection, connection.transaction():
        await connection.execute("LOCK TABLE run_inputs, run_secrets IN ACCESS EXCLUSIVE MODE")
        await until(
            harness.dsn,
            "count(*) > 0 FROM pg_locks AS waits JOIN pg_locks AS has USING (pid) "
            "WHERE NOT waits.granted AND has.granted AND has.locktype = 'advisory'",
        )
        yield


async def test_replica_frozen_in_a_transaction_blocks_no_maintenance(harness: Harness) -> None:
    busy = {"maintenance_interval_s": 0.2, "retention_days": 1e-7}
    async with gateway_process(harness, **busy) as (frozen, client):
        async with transaction_of_maintenance(harness):
            frozen.send_signal(signal.SIGSTOP)
        async with gateway_process(harness, **busy) as (_, other):
            await all_succeed(other, "")
            # Maintenance deletes them: the lock has passed on.
            await until(harness.dsn, "count(*) = 0 FROM runs")
            frozen.send_signal(signal.SIGCONT)
        await ask_anywhere(lambda: [client], "good again?", Seen("again"))


def peak_memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def test_plan_with_huge_references_does_not_affect_others(harness: Harness) -> None:
    """60 texts of 250 KB are too large for one dispatch already; 2,400 would be 600 MB."""
    large = RawAgent("large", lambda _: success(answer="x" * _REFERENCED))
    await add_raw_agent(harness, large)
    greedy = step("b", "good")
    reference = Value(string_value="@{outputs.a.answer}")
    greedy.sub_task_input["all"].list_value.values.extend([reference] * 2400)
    harness.planner.by_question = {"greedy": [step("a", "large"), greedy]}
    async with gateway_process(harness) as (process, client):
        greedy_run = asyncio.create_task(client.events("greedy?"))
        for turn in range(4):
            await all_succeed(client, f"{turn}")
        await greedy_run
        end = await ended_once(harness.dsn, "greedy?")
        # A plan of so many references is none, and no agent here has keywords to be found by.
        results = {each.agent_name: each.status for each in end.run_finished.response.agent_results}
        assert results.get("good") != AGENT_EXECUTION_STATUS_SUCCEEDED
        # It is one step that fails, and not the replica that loses its lease over it.
        owners = await fetch(harness.dsn, "SELECT DISTINCT epoch FROM run_events")
        assert [row["epoch"] for row in owners] == [1]
        assert peak_memory_kib(process.pid) < _MOST_MEMORY_KIB


# Unknown fields: protobuf keeps them, no bound covers them, so the log must drop them.


def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def groups(depth: int) -> bytes:
    """Groups inside one another: a reader counts them, though it knows none of them."""
    return varint(_UNKNOWN << 3 | 3) * depth + varint(_UNKNOWN << 3 | 4) * depth


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


async def read_by_all(client: Client, request: AskStreamRequest) -> list[RunEvent]:
    """The events of a run that is asked for, watched and shown."""
    events = [message.event async for message in client.call(request)]
    run_id = events[0].run_id
    assert (await client.run(run_id)).status == RUN_STATUS_SUCCEEDED
    assert (await client.watch(run_id))[-1].HasField("run_finished")
    return events


async def test_request_with_unknown_fields_leaves_a_readable_log(harness: Harness) -> None:
    inner = AgentRequest(question="deep?").SerializeToString() + groups(98)
    number = AskStreamRequest.DESCRIPTOR.fields_by_name["request"].number
    async with harness.gateway() as client:
        await read_by_all(client, AskStreamRequest.FromString(field(number, inner)))


@pytest.mark.parametrize("unknown", [groups(97), field(_UNKNOWN, b"x" * 3_900_000)])
@pytest.mark.requirement("S-12")
async def test_result_with_unknown_fields_leaves_a_readable_log(
    harness: Harness, unknown: bytes
) -> None:
    def evil(_: Any) -> AgentResult:
        return AgentResult.FromString(success().SerializeToString() + unknown)

    await add_raw_agent(harness, RawAgent("evil", evil))
    harness.planner.steps = [step(name, "evil") for name in "abc"]
    async with harness.gateway() as client:
        request = AskStreamRequest(request=AgentRequest(question="evil?", trace=True))
        events = await read_by_all(client, request)
    assert max(event.ByteSize() for event in events) < 100_000
