"""Rolling restart of replicas under load: clients only have to reconnect."""

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack

import pytest
from gateway_harness.harness import Harness, gateway_process
from gateway_harness.stored import adoptions, log_of
from gateway_harness.streamed import logged

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, RunEvent
from bos_agentkit import AgentTask
from bos_client import BosClient
from bos_testkit.agents import EchoAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step
from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash

PER_S = 20.0
RUNS = 200
CLIENTS = 4
# A lease that a loaded machine can keep, and room for what it has not got round to.
SETTINGS = {"lease_s": 10, "lease_renewal_s": 0.5, "max_active_runs": 2000, "run_timeout_s": 100}


class WorkingAgent(EchoAgent):
    """Takes a while, so that runs are under way whenever a replica leaves."""

    async def behave(self, task: AgentTask) -> AgentResult:
        await asyncio.sleep(0.3)
        return await super().behave(task)


async def follow(client: BosClient, number: int) -> list[RunEvent]:
    question = f"Question {number}?"
    return [event async for event in client.ask_stream(question, request_id=f"r{number}")]


@pytest.mark.timeout(600)
async def test_rolling_restart_under_load_is_invisible_to_clients(harness: Harness) -> None:
    quick, working = EchoAgent("quick"), WorkingAgent("working")
    await harness.add_agent(quick)
    await harness.add_agent(working)
    harness.planner.steps = [step("a", "quick"), step("b", "working", "", "a")]
    ports = [free_port() for _ in range(2)]
    target = "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports)
    async with AsyncExitStack() as stack:

        async def start(port: int) -> ForkedProcess:
            opening = gateway_process(harness, server__port=port, **SETTINGS)
            process, _ = await stack.enter_async_context(opening)
            return process

        replicas = [await start(port) for port in ports]
        clients = [await stack.enter_async_context(BosClient(target)) for _ in range(CLIENTS)]
        asked: list[asyncio.Task[list[RunEvent]]] = []

        async def ask_all() -> None:
            """At a steady pace, regardless of the answers."""
            loop = asyncio.get_running_loop()
            began = loop.time()
            for number in range(RUNS):
                await asyncio.sleep(began + number / PER_S - loop.time())
                following = follow(clients[number % CLIENTS], number)
                asked.append(asyncio.create_task(following))

        asking = asyncio.create_task(ask_all())
        for turn, port in enumerate(ports, 1):
            await eventually(lambda n=turn: len(asked) >= n * RUNS // 4, within_s=60)
            replicas[turn - 1].send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(replicas[turn - 1].wait(), 60) == 0
            await start(port)
        await asking
        followed = await asyncio.gather(*asked)
    for events in followed:
        sequences = [event.sequence for event in logged(events)]
        assert sequences == sorted(set(sequences))
        assert [event.HasField("run_finished") for event in events].count(True) == 1
        assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    log = await log_of(harness.dsn)
    assert sum(event.HasField("run_finished") for event in log) == RUNS
    assert set(adoptions(log)) == {"released"}, "no lease ran out"
    released = {event.run_released.reason for event in log if event.HasField("run_released")}
    assert released == {"drain"}
    # A step whose result was stored is never sent again; one that was under way may be.
    first = Counter(given.metadata.step_key for given in working.inputs)
    assert len(first) == RUNS
