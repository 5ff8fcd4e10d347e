"""A gateway is ended at every commit around what people are asked; the contract holds.

Each case ends one gateway just before the commit and another one just after it, as in
``test_crash_points.py``. Every approved action had its effect once.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from gateway_harness.answering import APPROVE, DENY, listed, respond
from gateway_harness.crash import commit_points
from gateway_harness.crash.clients import Clients, at, ended_at, has_seen, until_waiting
from gateway_harness.crash.harness import ASKS, WAITS, CrashHarness, Gateway, may_be_away
from gateway_harness.harness import Client
from gateway_harness.run_contract import stored_runs

from bos.gateway.v1 import (
    APPROVAL_KIND_OUTCOME_UNKNOWN,
    APPROVAL_STATUS_PENDING,
)
from bos_errors import AgentErrorType
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash


@asynccontextmanager
async def approving(
    crash: CrashHarness, *where: Gateway, instructions: str = ""
) -> AsyncIterator[None]:
    """Approve all proposals, at the first of these gateways that answers.

    Tasks without instructions are given these first. What may have been done is not done again.
    """

    async def approve_all(client: Client) -> None:
        for approval in await listed(client, status=APPROVAL_STATUS_PENDING):
            if approval.kind == APPROVAL_KIND_OUTCOME_UNKNOWN:
                await respond(client, approval, DENY)
            else:
                instructed = "Instructions" in approval.task_description
                await respond(client, approval, APPROVE, "" if instructed else instructions)

    async def approve_on() -> None:
        while True:
            for client in at(*where)():
                with may_be_away():
                    await approve_all(client)
                    break
            await asyncio.sleep(0.02)

    task = asyncio.create_task(approve_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def each_approval_had_its_effect_once(crash: CrashHarness) -> None:
    """Or the step says that the outcome is unknown, if its key does not show it."""
    runs = await stored_runs(crash.harness.dsn)
    for agent in (crash.asks_keyed, crash.asks_once):
        landed = Counter(effect.idempotency_key.split("/")[0] for effect in agent.effects)
        assert agent.repeatable or set(landed.values()) <= {1}
        for run in runs.values():
            (result,) = [
                event.step_finished.result
                for event in run.events
                if event.step_finished.result.agent_name == agent.card.name
            ]
            if result.error.type:
                assert (result.error.type, agent.repeatable) == (
                    AgentErrorType.OUTCOME_UNKNOWN,
                    False,
                )
            else:
                assert landed[run.run_id]


@pytest.mark.requirement("M-03", "M-15")
@pytest.mark.parametrize("kind", ["approval_requested", "run_released"])
async def test_ended_while_a_person_is_to_be_asked(crash: CrashHarness, kind: str) -> None:
    async with ended_at(crash, kind) as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), ASKS, 1)
        await asyncio.gather(before.died(), after.died())
        async with approving(crash, survivor):
            await clients.ended()
    await each_approval_had_its_effect_once(crash)


@pytest.mark.parametrize(
    "kind", ["approval_resolved", "instructions_classified", "effect_intended"]
)
async def test_ended_after_a_person_has_decided(crash: CrashHarness, kind: str) -> None:
    """At the owner, which has something else to do meanwhile; decided elsewhere."""
    async with ended_at(crash, kind) as (before, after, survivor):
        clients = Clients(crash)
        for each in (before, after):
            clients.ask(at(each, survivor), f"{ASKS}, {WAITS}", 1)
        await until_waiting(crash, 2)
        async with approving(crash, survivor, instructions="deploy it 2"):
            await asyncio.gather(before.died(), after.died())
            crash.slow.gate.set()
            await clients.ended()
    await each_approval_had_its_effect_once(crash)


async def test_ended_while_taking_a_decision(crash: CrashHarness) -> None:
    """At a replica that does not own the run; the person decides again elsewhere."""
    async with ended_at(crash, commit_points.DECIDE) as (before, after, owner):
        clients = Clients(crash)
        asked = clients.ask(at(owner), ASKS, 1)
        await eventually(lambda: has_seen(asked, "approval_requested", 2))
        for each in (before, after):
            async with approving(crash, each, owner):
                await each.died()
            if each is before:
                clients.ask(at(owner), ASKS, 1)
        async with approving(crash, owner):
            await clients.ended()
    await each_approval_had_its_effect_once(crash)
