"""Credentials that came with a question: who gets them, where they are kept, and for how long."""

import base64
import os
import tempfile
from typing import Any

from gateway_harness.harness import SHORT_LEASE, Client, Harness, gateway_process
from gateway_harness.stored import fetch, until
from google.protobuf.struct_pb2 import Struct

from bos.gateway.v1 import RunStatus
from bos_agentkit import agent_card
from bos_gateway.key_ring import SecretsKeyRing
from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.store import check_secrets
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

SECRET = "shop-token-4711"
ROWS = "SELECT run_id, key_id, ciphertext FROM run_secrets ORDER BY created_at"


def new_key(key_id: str = "k1") -> str:
    return f"{key_id}={base64.b64encode(os.urandom(32)).decode()}"


def credentials() -> Struct:
    context = Struct()
    context["shop_token"] = SECRET
    context["firebase_password"] = "of-no-agent"
    return context


async def plan_slow(harness: Harness) -> SlowAgent:
    """An agent that declares the credential, and waits."""
    card = agent_card("slow", "Waits.", secret_context_keys=["shop_token"])
    return await harness.plan(SlowAgent("slow", card=card))


async def begun(client: Client, request_id: str = "") -> str:
    """The id of an accepted run without followers."""
    call = client.stream(context=credentials(), request_id=request_id)
    message = await call.read()
    call.cancel()
    return str(message.event.run_id)


async def rows(harness: Harness) -> list[Any]:
    return await fetch(harness.dsn, ROWS)


TAMPER = (
    "UPDATE run_secrets SET ciphertext = "
    "set_byte(ciphertext, 20, get_byte(ciphertext, 20) # 1) WHERE run_id = $1"
)


async def test_adopter_sends_credentials_to_declaring_agents_alone(harness: Harness) -> None:
    slow, other = await plan_slow(harness), EchoAgent("other")
    await harness.add_agent(other)
    harness.planner.steps = [step("a", "slow"), step("b", "other", "", "a")]
    first = new_key()
    keys = f"{new_key('k2')},{first}"
    with tempfile.TemporaryFile() as log:
        async with gateway_process(harness, log=log, secrets_keys=first) as (process, client):
            run_id = await begun(client)
            await slow.started.wait()
            process.kill()
            await process.wait()
        async with gateway_process(harness, log=log, secrets_keys=keys) as (_, client):
            await eventually(lambda: len(slow.inputs) == 2)
            slow.release.set()
            events = await client.watch(run_id)
        log.seek(0)
        logged = log.read().decode()
    assert events[-1].run_finished.response.status == RunStatus.RUN_STATUS_SUCCEEDED
    assert [dict(each.secrets) for each in slow.inputs] == [{"shop_token": SECRET}] * 2
    assert [dict(each.secrets) for each in other.inputs] == [{}]
    assert await rows(harness) == []
    assert SECRET not in logged + str(events)


async def test_run_resumed_by_its_gateway_keeps_unstored_credentials(harness: Harness) -> None:
    slow = await plan_slow(harness)
    async with harness.gateway() as gateway:
        run_id = await begun(gateway)
        await slow.started.wait()
        # Its owner is asked to go on, not found to have lost it.
        await until(harness.dsn, "count(*) > 0 FROM run_events WHERE kind = 'step_dispatched'")
        await fetch(harness.dsn, "UPDATE runs SET replica_id = NULL")
        await eventually(lambda: len(slow.inputs) == 2)
        slow.release.set()
        await gateway.watch(run_id)
    assert [dict(each.secrets) for each in slow.inputs] == [{"shop_token": SECRET}] * 2


async def test_credentials_are_deleted_with_the_end_of_their_run(harness: Harness) -> None:
    slow = await plan_slow(harness)
    async with harness.gateway(secrets_keys=new_key()) as gateway:
        run_id = await begun(gateway, "mine")
        await slow.started.wait()
        assert await begun(gateway, "mine") == run_id
        assert [str(row["run_id"]) for row in await rows(harness)] == [run_id]
        await gateway.cancel(run_id)
        await gateway.watch(run_id)
        assert await rows(harness) == []


async def test_untrusted_credential_fails_its_step_only(harness: Harness) -> None:
    slow, other = await plan_slow(harness), EchoAgent("other")
    await harness.add_agent(other)
    harness.planner.steps = [step("a", "slow"), step("b", "other")]
    keys = new_key()
    async with gateway_process(harness, secrets_keys=keys) as (process, client):
        run_id = await begun(client)
        await begun(client)
        await eventually(lambda: len(slow.inputs) == 2)
        process.kill()
        await process.wait()
    await fetch(harness.dsn, TAMPER, run_id)
    async with harness.gateway(secrets_keys=keys, **SHORT_LEASE) as gateway:
        response = (await gateway.watch(run_id))[-1].run_finished.response
        slow.release.set()
    failed, well = response.agent_results
    assert (failed.error.type, well.HasField("error")) == ("CredentialLost", False)
    assert "shop_token" in failed.error.message
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED


async def test_credentials_without_a_key_live_as_long_as_the_gateway(harness: Harness) -> None:
    slow = await plan_slow(harness)
    with tempfile.TemporaryFile() as log:
        async with gateway_process(harness, log=log) as (process, client):
            run_id = await begun(client)
            await slow.started.wait()
            assert await rows(harness) == []
            process.kill()
            await process.wait()
        log.seek(0)
        assert "BOS_GATEWAY_SECRETS_KEYS" in log.read().decode()
    assert [dict(each.secrets) for each in slow.inputs] == [{"shop_token": SECRET}]
    async with harness.gateway(**SHORT_LEASE) as gateway:
        await gateway.watch(run_id)
        run = await gateway.run(run_id)
    assert run.response.agent_results[0].error.type == "CredentialLost"
    assert len(slow.inputs) == 1


async def test_doctor_distinguishes_a_missing_key_from_a_wrong_one(harness: Harness) -> None:
    slow = await plan_slow(harness)
    keys = new_key()
    ring, other = SecretsKeyRing.parse(keys), SecretsKeyRing.parse(new_key())

    async def finding(ring: SecretsKeyRing | None, ids: frozenset[str]) -> str:
        deployment = Deployment("test", "", "", "", {}, "", 1.0, secrets=ring, secrets_key_ids=ids)
        async with connect(harness.dsn, schema=SCHEMA) as session:
            found = await check_secrets(session, deployment)
        assert SECRET not in str(found)
        return found.level

    async with harness.gateway(secrets_keys=keys) as gateway:
        assert await finding(None, frozenset()) == "warning"
        run_id = await begun(gateway)
        await slow.started.wait()
        assert await finding(ring, ring.ids) == "ok"
        assert await finding(None, ring.ids) == "ok"
        assert await finding(None, frozenset({"k2"})) == "problem"
        assert await finding(other, other.ids) == "problem"
        await fetch(harness.dsn, TAMPER, run_id)
        assert await finding(ring, ring.ids) == "problem"
        slow.release.set()
        await gateway.watch(run_id)
    assert await finding(ring, ring.ids) == "ok"
