"""Runs belong to the user of the access token."""

from pathlib import Path

import grpc
import pytest
from gateway_harness.callers import signed_in, token
from gateway_harness.harness import Harness
from token_issuer import Issuer, openid_issuer

from bos.gateway.v1 import AgentRequest, AskRequest, GetRunRequest, ListAgentsRequest
from bos_chassis.settings import AuthSettings
from bos_errors import ResourceExhausted, from_rpc_error
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step


async def test_tokens_of_an_openid_issuer_say_whose_a_run_is(
    harness: Harness, tmp_path: Path
) -> None:
    """Identity plays no part: another issuer takes its place by configuration alone."""
    await harness.add_agent(EchoAgent("echo"))
    async with harness.gateway(auth=signed_in(tmp_path)) as gateway:
        ask = AskRequest(request=AgentRequest(question="What is new?"))
        answer = await gateway.stub.Ask(ask, timeout=30, metadata=token("auth0|ada"))
        get = GetRunRequest(run_id=answer.response.run_id)
        run = (await gateway.stub.GetRun(get, metadata=token("auth0|ada"))).run
        assert run.user_id == "auth0|ada"
        with pytest.raises(grpc.aio.AioRpcError) as hidden:
            await gateway.stub.GetRun(get, metadata=token("auth0|eve"))
    assert hidden.value.code() is grpc.StatusCode.NOT_FOUND


async def test_gateway_fetches_keys_of_an_issuer_over_http(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    issuer = Issuer()
    async with (
        openid_issuer(issuer) as url,
        harness.gateway(auth=AuthSettings.load(issuer=url)) as gateway,
    ):
        metadata = (("authorization", f"Bearer {issuer.token(iss=url, exp=2**40)}"),)
        listed = await gateway.stub.ListAgents(ListAgentsRequest(), timeout=30, metadata=metadata)
    assert [agent.card.name for agent in listed.agents] == ["echo"]


async def test_account_that_follows_too_much_does_not_fill_the_replica(
    harness: Harness, tmp_path: Path
) -> None:
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    async with harness.gateway(auth=signed_in(tmp_path), max_streams_per_user=1) as gateway:
        ask = AskRequest(request=AgentRequest(question="What is new?"))
        first = gateway.stub.Ask(ask, timeout=30, metadata=token("ada"))
        await slow.started.wait()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await gateway.stub.Ask(ask, timeout=30, metadata=token("ada"))
        error = from_rpc_error(refused.value)
        assert isinstance(error, ResourceExhausted)
        assert error.reason == "USER_STREAM_LIMIT"
        slow.release.set()
        assert (await gateway.stub.Ask(ask, timeout=30, metadata=token("eve"))).response.run_id
        assert (await first).response.run_id
