"""Trials: one run, one account or one replica in trouble, and everybody else beside it."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gateway_harness.trials import (
    HELD_STEP_S,
    add_raw,
    code_of,
    ended_once,
    fetch,
    plan_by_question,
    replica,
    succeeded,
    until,
)

from bos.gateway.v1 import (
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    WatchRunRequest,
)
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.plans import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gateway_harness.harness import Client, Harness

    from bos.agent.v1 import AgentInput, AgentResult

_OTHERS = 5
_ISSUER = "https://login.example.com"


class Gated:
    """Makes steps wait until the gate is open; signals that one has arrived."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()

    async def __call__(self, _: AgentInput, __: Any) -> AgentResult:
        self.arrived.set()
        await self.gate.wait()
        return succeeded("late")


async def gated_and_good(harness: Harness) -> Gated:
    gated = Gated()
    await add_raw(harness, "gated", gated, default_timeout_s=HELD_STEP_S)
    await add_raw(harness, "good")
    plan_by_question(harness, {"gated": [step("a", "gated")], "good": [step("a", "good")]})
    return gated


@asynccontextmanager
async def row_locked(harness: Harness, question: str) -> AsyncIterator[None]:
    """Hold the row of a run, as somebody with psql may."""
    async with connect(harness.dsn, schema=SCHEMA) as connection, connection.transaction():
        await connection.execute("SELECT FROM runs WHERE question = $1 FOR UPDATE", question)
        yield


async def all_succeed(client: Client, questions: list[str]) -> None:
    answers = await asyncio.gather(*(client.ask(question) for question in questions))
    assert {answer.status for answer in answers} == {RUN_STATUS_SUCCEEDED}


async def test_other_runs_of_a_replica_end_while_the_row_of_one_is_locked(harness: Harness) -> None:
    gated = await gated_and_good(harness)
    async with replica(harness) as (_, client, _):
        before = [asyncio.create_task(client.ask(f"gated before {n}?")) for n in range(_OTHERS)]
        held = asyncio.create_task(client.ask("gated and locked?"))
        await until(harness, "count(*) = $1 FROM run_events WHERE kind = 'step_dispatched'", 6)
        async with row_locked(harness, "gated and locked?"):
            gated.gate.set()
            # Accepted before the lock, and after it: all end, and it is still held.
            answers = await asyncio.gather(*before)
            assert {answer.status for answer in answers} == {RUN_STATUS_SUCCEEDED}
            for turn in range(3):
                await all_succeed(client, [f"good {turn}/{n}?" for n in range(_OTHERS)])
            (row,) = await fetch(
                harness, "SELECT finished_at FROM runs WHERE question = 'gated and locked?'"
            )
            assert row["finished_at"] is None
            assert not held.done()
        await held
        await ended_once(harness, "gated and locked?")


async def test_other_runs_go_on_while_the_statements_of_one_run_into_the_time_out(
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


SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'bos-%'"


async def test_frozen_replica_holds_nothing_once_its_runs_are_taken_over(harness: Harness) -> None:
    """Not a lock, not a snapshot that keeps VACUUM from its work, not the queue of NOTIFY."""
    gated = await gated_and_good(harness)
    async with replica(harness, maintenance_interval_s=0.2) as (frozen, client, _):
        call = client.stream("gated?")
        await call.read()
        await gated.arrived.wait()
        sessions = [row["pid"] for row in await fetch(harness, SESSIONS)]
        assert sessions
        frozen.send_signal(signal.SIGSTOP)
        async with replica(harness, maintenance_interval_s=0.2) as (_, other, _):
            await until(harness, "bool_and(epoch > 1) FROM runs")
            gated.gate.set()
            await until(
                harness, "count(*) = 0 FROM pg_stat_activity WHERE pid = ANY ($1::int[])", sessions
            )
            await fetch(harness, "SELECT pg_notify('bos_gateway_runs', gen_random_uuid()::text) "
                               "FROM generate_series(1, 50000)")  # fmt: skip
            await until(harness, "pg_notification_queue_usage() = 0")
            await all_succeed(other, ["good?"])
            await until(harness, "bool_and(finished_at IS NOT NULL) FROM runs")
            await ended_once(harness, "gated?")
            # And when it wakes, it does harm to nothing and serves again.
            frozen.send_signal(signal.SIGCONT)
            async with asyncio.timeout(60):
                while await code_of(client.ask("good again?")) is not grpc.StatusCode.OK:
                    pass
        await ended_once(harness, "gated?")
        call.cancel()


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


async def test_replica_frozen_inside_a_transaction_does_not_block_maintenance(
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


@pytest.fixture
def issuer(tmp_path: Path) -> tuple[Ed25519PrivateKey, dict[str, str]]:
    """A key that signs accounts, and the settings of gateways that believe it."""
    key = Ed25519PrivateKey.generate()
    public = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(key.public_key()))
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{**public, "kid": "k1", "alg": "EdDSA"}]}))
    return key, {"auth__issuer": _ISSUER, "auth__jwks_file": str(keys)}


async def test_one_account_cannot_take_every_stream_of_a_replica(
    harness: Harness, issuer: tuple[Ed25519PrivateKey, dict[str, str]]
) -> None:
    key, settings = issuer

    def account(user: str) -> Any:
        claims = {"iss": _ISSUER, "aud": "bos", "sub": user, "iat": 0, "exp": 2**40}
        signed = jwt.encode(claims, key, algorithm="EdDSA", headers={"kid": "k1"})
        return (("authorization", f"Bearer {signed}"),)

    gated = await gated_and_good(harness)
    bounds = {"max_streams": 50, "max_streams_per_user": 10}
    async with replica(harness, **bounds, **settings) as (_, client, _):
        ask = AskStreamRequest(request=AgentRequest(question="gated?"))
        call = client.stub.AskStream(ask, timeout=60, metadata=account("greedy"))
        run_id = (await call.read()).event.run_id
        watch = WatchRunRequest(run_id=run_id)
        streams = [
            client.stub.WatchRun(watch, timeout=60, metadata=account("greedy")) for _ in range(60)
        ]
        first = await asyncio.gather(*(code_of(each.read()) for each in streams))
        refused = [code for code in first if code is not grpc.StatusCode.OK]
        assert set(refused) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert len(refused) == len(streams) + 1 - 10
        question = AskRequest(request=AgentRequest(question="good?"))
        answer = await client.stub.Ask(question, timeout=30, metadata=account("somebody else"))
        assert answer.response.status == RUN_STATUS_SUCCEEDED
        # A refused client gets in once another stream of the account has ended.
        for each in streams:
            each.cancel()
        async with asyncio.timeout(60):
            while True:
                again = client.stub.WatchRun(watch, timeout=60, metadata=account("greedy"))
                if await code_of(again.read()) is grpc.StatusCode.OK:
                    break
        gated.gate.set()
        while (message := await again.read()) is not grpc.aio.EOF:
            last = message
        assert last.event.HasField("run_finished")
        call.cancel()
