"""Run tokens at an agent: accepted for this agent and exactly this step."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentInput,
    AgentServiceStub,
    DescribeRequest,
    ExecuteRequest,
    TaskMetadata,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.settings import AuthSettings
from bos_errors import PermissionDenied, Unauthenticated, from_rpc_error
from bos_testkit.agents import EchoAgent, agent_server

RUN, STEP, USER = "run-1", "run-1/0/a", "asha"


class GuardedAgent:
    """An agent with authentication, and the key that mints its run tokens."""

    def __init__(self, stub: Any, signer: RunTokenSigner, agent: EchoAgent) -> None:
        self.stub = stub
        self.signer = signer
        self.agent = agent

    def token(self, **claims: Any) -> str:
        wanted = {"user": USER, "run": RUN, "step": STEP, "audiences": ["echo"], "ttl_s": 30.0}
        return self.signer.mint(**{**wanted, **claims})

    async def execute(self, token: str | None) -> Any:
        """Execute the step; returns the last message."""
        metadata = TaskMetadata(user_id=USER, run_id=RUN, step_key=STEP)
        request = ExecuteRequest(input=AgentInput(task="go", metadata=metadata))
        headers = () if token is None else ((RUN_TOKEN_KEY, token),)
        call = self.stub.Execute(request, metadata=headers, timeout=10)
        return [message async for message in call][-1].result


@pytest.fixture
async def guarded() -> AsyncIterator[GuardedAgent]:
    private, public = generate_keypair()
    agent = EchoAgent("echo")
    async with (
        agent_server(agent, auth=AuthSettings(run_token_public_keys=public)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield GuardedAgent(AgentServiceStub(channel), RunTokenSigner(private), agent)


async def test_run_token_for_this_step_is_accepted(guarded: GuardedAgent) -> None:
    result = await guarded.execute(guarded.token())
    assert result.status == AGENT_EXECUTION_STATUS_SUCCEEDED


@pytest.mark.parametrize(
    "claims",
    [{"step": "run-1/0/b"}, {"run": "run-2"}, {"user": "ravi"}, {"step": ""}],
    ids=["another step", "another run", "another user", "no step"],
)
async def test_run_token_for_anything_else_is_refused(
    guarded: GuardedAgent, claims: dict[str, Any]
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await guarded.execute(guarded.token(**claims))
    error = from_rpc_error(caught.value)
    assert isinstance(error, PermissionDenied)
    assert error.reason == "RUN_TOKEN_OTHER_STEP"
    assert not guarded.agent.inputs


async def test_invalid_tokens_are_refused(guarded: GuardedAgent) -> None:
    unknown = RunTokenSigner(generate_keypair()[0])
    refused = (
        None,
        guarded.token(ttl_s=-60.0),
        guarded.token(audiences=["sql"]),
        guarded.token(audiences=["sql", "echo"]),  # minted for another agent
        unknown.mint(USER, RUN, STEP, ["echo"], 30.0),
        "nonsense",
    )
    for token in refused:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await guarded.execute(token)
        assert isinstance(from_rpc_error(caught.value), Unauthenticated)
    assert not guarded.agent.inputs


async def test_token_of_gateway_describes_agent(guarded: GuardedAgent) -> None:
    token = guarded.signer.mint("gateway", "", "", ["echo"], 30.0)
    answer = await guarded.stub.Describe(
        DescribeRequest(), metadata=((RUN_TOKEN_KEY, token),), timeout=10
    )
    assert answer.card.name == "echo"
