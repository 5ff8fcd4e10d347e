"""Prefetch (``Prepare``) for a run whose plan is being made."""

from typing import Any

import grpc
import pytest

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentCard,
    AgentInput,
    AgentServiceStub,
    DescribeRequest,
    ExecuteRequest,
    PrepareRequest,
    TaskMetadata,
)
from bos_agentkit import agent_card
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_errors import (
    BosError,
    DeadlineExceeded,
    PermissionDenied,
    ResourceExhausted,
    from_rpc_error,
)
from bos_testkit.agents import EchoAgent, PreparingAgent, agent_server, call_agent
from bos_testkit.waiting import eventually

FOR_RUN = PrepareRequest(metadata=TaskMetadata(user_id="asha", run_id="run-1"), question="What?")


async def refused(call: Any) -> BosError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def described(agent: Any, **settings: Any) -> AgentCard:
    async with (
        agent_server(agent, **settings) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        return (await AgentServiceStub(channel).Describe(DescribeRequest(), timeout=5)).card


async def test_card_says_whether_the_agent_prefetches() -> None:
    assert (await described(PreparingAgent())).prepares
    assert not (await described(EchoAgent())).prepares
    assert (await described(EchoAgent(card=agent_card("a", "An agent.", prepares=True)))).prepares


async def test_agent_gets_user_run_and_question() -> None:
    agent = PreparingAgent()
    agent.release.set()
    async with agent_server(agent) as address, grpc.aio.insecure_channel(address) as channel:
        await AgentServiceStub(channel).Prepare(FOR_RUN, timeout=5)
    ((metadata, question),) = agent.prepared
    assert (metadata.user_id, metadata.run_id, question) == ("asha", "run-1", "What?")


async def test_agents_that_prefetch_nothing_answer_at_once() -> None:
    async with agent_server(EchoAgent()) as address, grpc.aio.insecure_channel(address) as channel:
        await AgentServiceStub(channel).Prepare(FOR_RUN, timeout=5)


async def test_prefetches_at_their_limit_take_no_capacity_from_steps() -> None:
    agent = PreparingAgent()
    async with (
        agent_server(agent, max_concurrent_steps=8) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = AgentServiceStub(channel)
        calls = [stub.Prepare(FOR_RUN, timeout=30) for _ in range(2)]
        await eventually(lambda: len(agent.prepared) == 2)
        error = await refused(stub.Prepare(FOR_RUN, timeout=30))
        assert isinstance(error, ResourceExhausted)
        assert error.reason == "AGENT_BUSY"
        _, result = await call_agent(address, AgentInput(task="go"))
        assert result.status == AGENT_EXECUTION_STATUS_SUCCEEDED
        agent.release.set()
        for call in calls:
            await call
        await stub.Prepare(FOR_RUN, timeout=5)


async def test_prefetch_ends_at_its_time_limit_or_with_its_caller() -> None:
    agent = PreparingAgent()
    async with agent_server(agent) as address, grpc.aio.insecure_channel(address) as channel:
        stub = AgentServiceStub(channel)
        assert isinstance(await refused(stub.Prepare(FOR_RUN, timeout=0.1)), DeadlineExceeded)
        await agent.cancelled.wait()
        agent.cancelled.clear()
        agent.started.clear()
        call = stub.Prepare(FOR_RUN, timeout=30)
        await agent.started.wait()
        call.cancel()
        await agent.cancelled.wait()


async def test_failed_prefetch_does_not_affect_the_agent() -> None:
    agent = PreparingAgent(error=RuntimeError("secret: 42"))
    agent.release.set()
    async with (
        agent_server(agent, max_concurrent_steps=1) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        for _ in range(3):
            error = await refused(AgentServiceStub(channel).Prepare(FOR_RUN, timeout=5))
            assert error.reason == "INTERNAL"
            assert "42" not in error.message
        _, result = await call_agent(address, AgentInput(task="go"))
    assert result.status == AGENT_EXECUTION_STATUS_SUCCEEDED


@pytest.mark.parametrize(
    ("method", "claims", "allowed"),
    [
        ("Prepare", ("asha", "run-1", ""), True),
        ("Prepare", ("asha", "run-2", ""), False),
        ("Prepare", ("asha", "run-1", "run-1/0/a"), False),
        ("Execute", ("asha", "run-1", ""), False),
    ],
    ids=["its run", "another run", "a step", "for a step"],
)
async def test_run_token_of_the_run_and_of_no_step_is_for_prefetching(
    method: str, claims: tuple[str, str, str], allowed: bool
) -> None:
    private, public = generate_keypair()
    agent = PreparingAgent()
    agent.release.set()
    token = RunTokenSigner(private).mint(*claims, ["preparing"], 30.0, use="step")
    headers = ((RUN_TOKEN_KEY, token),)
    step = ExecuteRequest(input=AgentInput(task="go", metadata=FOR_RUN.metadata))
    async with (
        agent_server(agent, auth=AuthSettings(run_token_public_keys=public)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = AgentServiceStub(channel)
        if method == "Prepare":
            call = stub.Prepare(FOR_RUN, metadata=headers, timeout=5)
        else:
            call = stub.Execute(step, metadata=headers, timeout=5).read()
        if allowed:
            await call
        else:
            assert isinstance(await refused(call), PermissionDenied)
    assert bool(agent.prepared) is allowed
    assert not agent.inputs


async def test_step_timeout_setting_overrides_the_card() -> None:
    agent = EchoAgent(card=agent_card("echo", "Echoes.", default_timeout_s=60))
    assert (await described(agent)).default_timeout.seconds == 60
    assert (await described(agent, step_timeout_s=900)).default_timeout.seconds == 900
    assert agent.card.default_timeout.seconds == 60
