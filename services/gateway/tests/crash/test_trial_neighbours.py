"""Trials: one run, one account or one replica in trouble, and everybody else beside it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from gateway_harness.harness import Client, Harness
from gateway_harness.trials import (
    HELD_STEP_S,
    add_raw,
    code_of,
    plan_by_question,
    replica,
    succeeded,
    until,
)

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
)
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.plans import step

_OTHERS = 5


class Gated:
    """Makes steps wait until the gate is open; signals that one has arrived."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()

    async def __call__(self, _: Any) -> AgentResult:
        self.arrived.set()
        await self.gate.wait()
        return succeeded("late")


async def gated_and_good(harness: Harness) -> Gated:
    gated = Gated()
    await add_raw(harness, "gated", gated, default_timeout_s=HELD_STEP_S)
    await add_raw(harness, "good")
    plan_by_question(harness, {"gated": [step("a", "gated")], "good": [step("a", "good")]})
    return gated


async def all_succeed(client: Client, questions: list[str]) -> None:
    answers = await asyncio.gather(*(client.ask(question) for question in questions))
    assert {answer.status for answer in answers} == {RUN_STATUS_SUCCEEDED}


async def test_runs_go_on_while_statements_of_another_time_out(
    harness: Harness,
) -> None:
    gated = await gated_and_good(harness)
    gated.gate.set()
    async with replica(harness) as (first, client, _), replica(harness) as (_, other, _):
        await client.ask("good, to begin with?")
        async with connect(harness.dsn, schema=SCHEMA) as connection:
            await connection.execute(
                "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF EXISTS (SELECT FROM gateway.runs WHERE run_id = NEW.run_id "
                "AND question LIKE 'gated%') THEN PERFORM pg_sleep(60); END IF; "
                "RETURN NEW; END $$"
            )
            await connection.execute(
                "CREATE TRIGGER slow BEFORE INSERT ON run_events FOR EACH ROW "
                "WHEN (NEW.kind = 'step_finished') EXECUTE FUNCTION slow()"
            )
        stuck = client.stream("gated and slow?")
        await stuck.read()
        # PostgreSQL is at it: nothing can be said about the run any more.
        await until(
            harness,
            "count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'PgSleep' "
            "AND application_name LIKE 'bos-gateway-writer%'",
        )
        for turn in range(3):
            await all_succeed(client, [f"good {turn}/{n}?" for n in range(_OTHERS)])
        # Nor does the replica that adopts it stand still.
        first.kill()
        await until(harness, "bool_and(epoch > 1) FROM runs WHERE question LIKE 'gated%'")
        for turn in range(3):
            await all_succeed(other, [f"good later {turn}/{n}?" for n in range(_OTHERS)])
        async with connect(harness.dsn, schema=SCHEMA) as connection:
            await connection.execute("DROP TRIGGER slow ON run_events")
        stuck.cancel()


@asynccontextmanager
async def transaction_of_maintenance(harness: Harness) -> AsyncIterator[None]:
    """Let the holder of maintenance's advisory lock wait inside its transaction."""
    async with connect(harness.dsn, schema=SCHEMA) as connection, connection.transaction():
        await connection.execute("LOCK TABLE run_inputs, run_secrets IN ACCESS EXCLUSIVE MODE")
        await until(
            harness,
            "count(*) > 0 FROM pg_locks AS waits JOIN pg_locks AS has USING (pid) "
            "WHERE NOT waits.granted AND has.granted AND has.locktype = 'advisory'",
        )
        yield


async def test_replica_frozen_in_a_transaction_blocks_no_maintenance(
    harness: Harness,
) -> None:
    await gated_and_good(harness)
    async with replica(harness, maintenance_interval_s=0.2, retention_days=1e-7) as (
        frozen,
        client,
        _,
    ):
        async with transaction_of_maintenance(harness):
            frozen.send_signal(signal.SIGSTOP)
        async with replica(harness, maintenance_interval_s=0.2, retention_days=1e-7) as (
            _,
            other,
            _,
        ):
            await all_succeed(other, ["good?"])
            # Maintenance deletes it: the lock has passed on.
            await until(harness, "count(*) = 0 FROM runs WHERE question = 'good?'")
            frozen.send_signal(signal.SIGCONT)
        async with asyncio.timeout(60):
            while await code_of(client.ask("good again?")) is not grpc.StatusCode.OK:
                pass
