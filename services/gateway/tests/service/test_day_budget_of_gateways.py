"""Tokens of a day at gateways: what users hear, and what is counted when runs end."""

import asyncio

import grpc
import pytest
from gateway_harness.admission import (
    AS_ANNA,
    as_account,
    days,
    unsettled,
)
from gateway_harness.harness import Harness

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Usage
from bos.gateway.v1 import (
    AgentRequest,
    AskRequest,
)
from bos_agentkit import AgentTask
from bos_errors import ResourceExhausted, from_rpc_error
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step


class Spender(RecordingAgent):
    """Says that it consumed some tokens."""

    def __init__(self, tokens: int) -> None:
        super().__init__("echo")
        self._tokens = tokens

    async def behave(self, task: AgentTask) -> AgentResult:
        usage = Usage(input_tokens=self._tokens - 100, output_tokens=100)
        return AgentResult(status=AGENT_EXECUTION_STATUS_SUCCEEDED, answer="done", usage=usage)


async def test_day_limit_error_has_usage_limit_and_reset_time(
    harness: Harness,
) -> None:
    await harness.add_agent(Spender(9000))
    harness.planner.steps = [step("a", "echo")]
    bounds = {"max_run_tokens": 20_000, "max_user_day_tokens": 10_000}
    async with harness.gateway(auth=as_account(), **bounds) as gateway:
        request = AskRequest(request=AgentRequest(question="What?"))
        first = (await gateway.stub.Ask(request, metadata=AS_ANNA)).response
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.stub.Ask(request, metadata=AS_ANNA)
        assert gateway.metric("bos_runs_refused_total", reason="day_limit") == 1
    used = first.metadata.usage
    spent = used.input_tokens + used.output_tokens + used.unreported_tokens
    assert spent >= 9000
    assert first.metadata.max_tokens == 10_000  # lowered to what the day allows
    error = from_rpc_error(caught.value)
    assert isinstance(error, ResourceExhausted)
    assert error.reason == "USER_DAY_LIMIT"
    assert error.metadata["used_tokens"] == str(spent)
    assert error.metadata["limit_tokens"] == "10000"
    assert error.metadata["reset_time"].endswith("T00:00:00Z")
    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= 86_400
    assert await days(harness.dsn) == {"anna": spent, "": spent}


async def test_total_day_limit_holds_for_anonymous_callers(
    harness: Harness,
) -> None:
    await harness.add_agent(Spender(9000))
    harness.planner.steps = [step("a", "echo")]
    bounds = {"max_run_tokens": 10_000, "max_day_tokens": 10_000, "max_user_day_tokens": 1}
    async with harness.gateway(**bounds) as gateway:
        await gateway.ask()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.ask()
    error = from_rpc_error(caught.value)
    assert error.reason == "DAY_LIMIT"
    assert set(error.metadata) == {"reset_time"}


async def test_gateways_settle_what_has_ended(harness: Harness) -> None:
    await harness.add_agent(Spender(2000))
    harness.planner.steps = [step("a", "echo")]
    bounds = {"max_run_tokens": 20_000, "max_user_day_tokens": 20_000}
    async with harness.gateway(auth=as_account(), maintenance_interval_s=0.05, **bounds) as gateway:
        request = AskRequest(request=AgentRequest(question="What?"))
        await gateway.stub.Ask(request, metadata=AS_ANNA)
        async with connect(harness.dsn, schema=SCHEMA) as connection, asyncio.timeout(60):
            while not (rows := await connection.fetch("SELECT user_id, tokens FROM token_days")):
                pass
    settled = dict(map(tuple, rows))
    assert await unsettled(harness.dsn) == 0
    assert await days(harness.dsn) == settled
    assert settled["anna"] == settled[""] >= 2000
