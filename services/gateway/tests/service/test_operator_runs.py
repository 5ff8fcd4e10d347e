"""What an operator is shown of runs: their logs, their attempts, and who drove them."""

import asyncio
import json
from uuid import uuid4

import pytest
from gateway_harness.harness import Harness, gateway_process

from bos.planner.v1 import Step
from bos_testkit.agents import EchoAgent, SlowAgent

from .test_operator import bos, elsewhere, environment

__all__ = ["elsewhere"]


@pytest.mark.requirement("P-07", "P-09")
async def test_the_log_of_a_run_is_shown_whole(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [Step(step_id="a", agent="echo", task="say it\x1b[31m")]
    async with harness.gateway() as gateway:
        response = await gateway.ask()
    env = environment(harness)
    shown = await bos("runs", "log", response.run_id, env=env)
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert "run_accepted" in lines[0]
    assert "run_finished" in lines[-1]
    assert "\x1b" not in shown.stdout

    whole = await bos("runs", "log", response.run_id, "--json", env=env)
    events = [json.loads(line) for line in whole.stdout.splitlines()]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["event"]["run_accepted"]["request"]["question"] == "What is new?"

    unknown = await bos("runs", "log", str(uuid4()), env=env)
    assert unknown.exit_code == 1
    assert "There is no run" in unknown.stderr


async def test_the_log_of_a_run_ends_with_its_attempts(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [
        Step(step_id="a", agent="echo", task="look"),
        Step(step_id="b", agent="echo", task="use @{outputs.a.nowhere}"),
    ]
    harness.planner.revisions = [[Step(step_id="c", agent="echo", task="do without")]]
    async with harness.gateway() as gateway:
        response = await gateway.ask()
    shown = await bos("runs", "log", response.run_id, env=environment(harness))
    assert shown.exit_code == 0, shown.output
    attempts = [line for line in shown.stdout.splitlines() if line.startswith("attempt")]
    assert attempts[0] == "attempt  execution attempt 1 started"
    assert "attempt  replanning 1 succeeded" in attempts
    assert attempts[-1] == "attempt  execution attempt 2 ended: 1 of 1 steps succeeded"


async def test_adopted_runs_are_listed_with_reason_and_end(
    harness: Harness,
) -> None:
    agent = SlowAgent("slow")
    await harness.add_agent(agent)
    harness.planner.steps = [Step(step_id="a", agent="slow", task="wait")]
    env = environment(harness)
    async with gateway_process(harness) as (process, gateway):
        stream = gateway.stream()
        run_id = (await stream.read()).event.run_id
        await asyncio.wait_for(agent.started.wait(), 60)
        assert "no run changed" in (await bos("runs", "adopted", env=env)).stdout
        process.kill()
        await process.wait()
        stream.cancel()
    agent.release.set()
    async with gateway_process(harness) as (_, gateway):
        await gateway.watch(run_id)
    (line,) = (await bos("runs", "adopted", env=env)).stdout.splitlines()
    assert line.startswith(run_id)
    assert "1 x lease_expired" in line
    assert line.endswith("succeeded")
    (as_json,) = (await bos("runs", "adopted", "--json", env=env)).stdout.splitlines()
    assert json.loads(as_json)["reasons"] == {"lease_expired": 1}

    wrong = await bos("runs", "adopted", "--since", "soon", env=env)
    assert wrong.exit_code == 2
