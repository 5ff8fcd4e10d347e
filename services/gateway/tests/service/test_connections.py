"""Users' connections: who gets them, that nothing of them is kept, and what happens without."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from gateway_harness.callers import bearer
from gateway_harness.harness import Harness
from identity_harness import Caller, Starter

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import RunStatus
from bos.identity.v1 import DeleteConnectionRequest, PutConnectionRequest
from bos_agentkit import AgentTask, agent_card, succeeded
from bos_chassis.auth.callers import generate_keypair
from bos_chassis.settings import AuthSettings
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent

SECRET = "app-password-4711"
KIND = "mail.imap"
ALLOWED = {"mail": [KIND]}


class TellingAgent(RecordingAgent):
    """Says what it was given, which it must not."""

    def __init__(self, name: str, kinds: tuple[str, ...] = (KIND,)) -> None:
        super().__init__(name, card=agent_card(name, "Repeats.", connection_kinds=kinds))

    async def behave(self, task: AgentTask) -> AgentResult:
        said = task.input.secrets.get(KIND, "nothing")
        task.trace.message(f"The password is {said}")
        return succeeded(task, answer=f"It is {said}", data={"said": said})


class Setup:
    def __init__(self, harness: Harness, identity: Caller, key: str) -> None:
        self.harness, self.identity, self.key = harness, identity, key

    def gateway(self, **overrides: Any) -> Any:
        auth = AuthSettings.load(issuer="bos-identity", identity_target=self.identity.address)
        given = {"auth": auth, "run_token_private_key": self.key, "agent_connections": ALLOWED}
        return self.harness.gateway(**{**given, **overrides})

    async def connected(self) -> str:
        token = await self.identity.administrator()
        request = PutConnectionRequest(
            kind=KIND, label="Work", fields={"host": "mail.example.com"}, secret=SECRET
        )
        await self.identity.call("PutConnection", request, token)
        return token


@pytest.fixture
async def setup(harness: Harness, stack: AsyncExitStack) -> Setup:
    key, public = generate_keypair()
    auth = AuthSettings.load(run_token_public_keys=public)
    return Setup(harness, await Starter(stack, harness.dsn)(auth=auth), key)


async def test_connection_reaches_its_agent_masked_and_not_stored(
    harness: Harness, setup: Setup
) -> None:
    mail, other = TellingAgent("mail"), TellingAgent("other")
    await harness.plan(mail, other)
    token = await setup.connected()
    async with setup.gateway() as gateway:
        response = await gateway.by(bearer(token)).ask()
    assert response.status == RunStatus.RUN_STATUS_SUCCEEDED
    (given,) = mail.inputs
    assert dict(given.secrets) == {KIND: SECRET}
    assert [(each.kind, each.label, dict(each.fields)) for each in given.connections] == [
        (KIND, "Work", {"host": "mail.example.com"})
    ]
    (without,) = other.inputs
    assert (dict(without.secrets), list(without.connections)) == ({}, [])
    assert SECRET not in str(response)
    assert f"It is [secret {KIND}]" in str(response)
    async with connect(harness.dsn, schema="gateway") as session:
        for table in ("run_events", "run_secrets"):
            rows = await session.fetch(f"SELECT * FROM {table}")
            assert SECRET.encode() not in b"".join(
                each if isinstance(each, bytes) else str(each).encode()
                for row in rows
                for each in row
            )


async def test_deleted_connections_and_missing_identity_are_stated(
    harness: Harness, setup: Setup, stack: AsyncExitStack
) -> None:
    mail, plain = TellingAgent("mail"), TellingAgent("plain", kinds=())
    await harness.plan(mail, plain)
    token = await setup.connected()
    async with setup.gateway() as gateway:
        await gateway.by(bearer(token)).ask()
        await setup.identity.call("DeleteConnection", DeleteConnectionRequest(kind=KIND), token)
        await gateway.by(bearer(token)).ask()
        assert [dict(each.secrets) for each in mail.inputs] == [{KIND: SECRET}, {}]
        await stack.aclose()
        response = await gateway.by(bearer(token)).ask()
    assert len(mail.inputs) == 2
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    failed, _ = response.agent_results
    assert "connections to outside systems cannot be read" in failed.error.message
    # An agent that asks for no connection costs no call of identity.
    assert len(plain.inputs) == 3
