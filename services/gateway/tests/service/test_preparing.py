"""Agents prepare (`Agent.prepare`) while a run is planned; runs do not depend on it."""

import asyncio

import jwt
from gateway_harness.harness import Client, Harness

from bos.agent.v1 import TaskMetadata
from bos.gateway.v1 import RUN_STATUS_CANCELLED, RUN_STATUS_SUCCEEDED
from bos_agentkit import agent_card
from bos_chassis.auth.callers import current_run_token, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_testkit.agents import EchoAgent, PreparingAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually


class TokenKeeper(PreparingAgent):
    token = ""

    async def prepare(self, metadata: TaskMetadata, question: str) -> None:
        self.token = current_run_token() or ""
        await super().prepare(metadata, question)


def outcomes(gateway: Client, agent: str, outcome: str) -> float:
    labels = {"agent": agent, "outcome": outcome}
    return gateway.metric("bos_agent_preparations_total", **labels) or 0


async def test_agents_prepare_while_the_plan_is_made_and_no_step_waits(harness: Harness) -> None:
    agent = PreparingAgent()
    await harness.plan(agent)
    harness.planner.before = agent.started.wait  # the plan is made during the call, or never
    async with harness.gateway() as gateway:
        response = await gateway.ask("What is new?")
        assert response.status == RUN_STATUS_SUCCEEDED
        ((metadata, question),) = agent.prepared
        assert (metadata.run_id, metadata.step_key) == (response.run_id, "")
        assert question == "What is new?"
        assert len(agent.inputs) == 1
        # It never finished and was not waited for: the end of the run cancelled it.
        await agent.cancelled.wait()
        await eventually(lambda: outcomes(gateway, "preparing", "cancelled") == 1)


async def test_only_declared_and_not_excluded_agents_prepare(harness: Harness) -> None:
    asked, excluded, silent = PreparingAgent(), PreparingAgent("excluded"), EchoAgent("echo")
    asked.release.set()
    await harness.plan(asked, excluded, silent)
    harness.planner.steps = []
    async with harness.gateway() as gateway:
        await gateway.ask(disable_agents=["excluded"])
        await eventually(lambda: outcomes(gateway, "preparing", "done") == 1)
        assert outcomes(gateway, "echo", "unimplemented") == outcomes(gateway, "echo", "done") == 0
    assert not excluded.prepared


async def test_failure_to_prepare_changes_nothing(harness: Harness) -> None:
    agent = PreparingAgent(error=RuntimeError("broken"))
    agent.release.set()
    # The other one's card said that it prepares; it has been replaced by one that does not.
    card = agent_card("echo", "Echoes.", prepares=True)
    await harness.plan(agent, EchoAgent("echo", card=card))
    async with harness.gateway() as gateway:
        response = await gateway.ask(trace=True)
        await eventually(lambda: bool(agent.prepared))
        assert outcomes(gateway, "preparing", "done") == 0
    assert response.status == RUN_STATUS_SUCCEEDED
    assert len(agent.inputs) == 1
    assert not any(event.data["type"].string_value for event in response.trace)


async def test_prepare_is_called_once_per_run(harness: Harness) -> None:
    agent = PreparingAgent()
    agent.release.set()
    await harness.add_agent(agent)
    harness.planner.steps = [step("b", "preparing"), step("a", "preparing", "@{outputs.b.nowhere}")]
    harness.planner.revisions = [[step("c", "preparing")]]
    async with harness.gateway() as gateway:
        await gateway.ask()
    assert len(harness.planner.requests) == 2
    assert len(agent.prepared) == 1


async def test_reading_ahead_ends_when_the_run_is_cancelled(harness: Harness) -> None:
    agent = PreparingAgent()
    await harness.add_agent(agent)
    harness.planner.before = asyncio.Event().wait
    async with harness.gateway() as gateway:
        asking = asyncio.create_task(gateway.ask())
        await agent.started.wait()
        ((metadata, _),) = agent.prepared
        await gateway.cancel(metadata.run_id)
        assert (await asking).status == RUN_STATUS_CANCELLED
        await agent.cancelled.wait()


async def test_token_is_for_the_run_the_agent_and_what_it_calls(harness: Harness) -> None:
    private, public = generate_keypair()
    card = agent_card("preparing", "Reads ahead.", downstream_audiences=["mcp_db"], prepares=True)
    agent = TokenKeeper(card=card)
    agent.release.set()
    await harness.add_agent(agent, auth=AuthSettings(run_token_public_keys=public))
    async with harness.gateway(run_token_private_key=private) as gateway:
        response = await gateway.ask()
        await eventually(lambda: outcomes(gateway, "preparing", "done") == 1)
    claims = jwt.decode(agent.token, options={"verify_signature": False})
    assert claims["aud"] == ["preparing", "mcp_db"]
    # Unlike the gateway's own calls, whose tokens open what is for the gateway alone.
    assert (claims["use"], claims["step"]) == ("step", "")
    assert response.run_id in claims.values()
