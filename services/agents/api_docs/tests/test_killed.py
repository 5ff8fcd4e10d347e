"""kill -9 of the agent's process between sending and the result, with the API counting effects."""

import asyncio
import json
import os
import signal
from contextlib import AsyncExitStack

import grpc
import pytest

from bos.agent.v1 import DescribeRequest
from bos_chassis.telemetry import Telemetry
from bos_testkit.fixtures.agent_harness import AgentHarness
from bos_testkit.processes import RunningProcess, forked_service
from bos_testkit.scripted_model.server import ScriptedModel

from .api_under_test import STEP, ApiUnderTest, planned

pytestmark = pytest.mark.process

TASK = "Open a ticket about pumps"


async def agent_process(
    stack: AsyncExitStack, api: ApiUnderTest, model: ScriptedModel
) -> tuple[AgentHarness, RunningProcess]:
    """The agent as a process of its own, at a port of its own."""
    apis = {"orders": {"openapi": f"{api.base_url}/openapi.json", "base_url": api.base_url}}
    settings = {
        "BOS_SERVER_PORT": "0",
        "BOS_API_DOCS_APIS": json.dumps(apis),
        "BOS_HTTP_INTERNAL_ORIGINS": json.dumps({api.base_url: ["127.0.0.1/32"]}),
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "scripted",
        "BOS_MODEL": "scripted",
    }
    process = await stack.enter_async_context(forked_service("bos_api_docs", settings))
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(process.address))
    telemetry = Telemetry.for_tests("api_docs")
    agent = AgentHarness("api_docs", process.address, channel, model, telemetry, STEP)
    await agent.stub.Describe(DescribeRequest(), timeout=60, wait_for_ready=True)
    return agent, process


async def test_killed_agent_opens_a_ticket_once(stack: AsyncExitStack, api: ApiUnderTest) -> None:
    """The step is sent again, as the gateway does it for calls that are idempotent by key."""
    plan = planned(TASK, "POST", "/tickets", json_body={"topic": "pumps"})
    model = await stack.enter_async_context(ScriptedModel([plan]))
    agent, process = await agent_process(stack, api, model)
    waiting = await agent.do(TASK)
    api.hold = asyncio.Event()
    performing = asyncio.create_task(agent.do(TASK, approved=waiting.action))
    await asyncio.wait_for(api.arrived.wait(), 30)
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(grpc.aio.AioRpcError):
        await performing
    assert len(api.effects) == 1  # it happened, and is not reported
    api.hold.set()
    agent, _ = await agent_process(stack, api, model)
    done = await agent.do(TASK, approved=waiting.action)
    assert done.data["status_code"] == 201
    assert len(api.effects) == 1
    keys = {each.headers["idempotency-key"] for each in api.seen if each.method == "POST"}
    assert keys == {f"run-1/0/step_1/{waiting.action.action_id}"}
