"""``python -m bos_bench.short_harness``: planner, composer and one agent for the shortest of runs.

Prints one line of JSON with their addresses, and serves until its standard input ends. A question
that begins with "hold" is never planned, so that there is something to wait for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from typing import Any

from bos.composer.v1 import add_ComposerServiceServicer_to_server
from bos.planner.v1 import (
    MakePlanRequest,
    MakePlanResponse,
    Plan,
    PlannerServiceServicer,
    Step,
    add_PlannerServiceServicer_to_server,
)
from bos_bench.doubles import FixedComposer
from bos_chassis.concurrency.loop import new_event_loop
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings, TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_testkit.agents import EchoAgent, agent_server

HOLD = "hold"
_AGENT = "echo"
_MORE_STEPS_THAN_EVER = 1024


class OneStepPlanner(PlannerServiceServicer):
    """Always the same step."""

    async def MakePlan(self, request: MakePlanRequest, context: Any) -> MakePlanResponse:
        if request.question.startswith(HOLD):
            await asyncio.Event().wait()
        plan = Plan(steps=[Step(step_id="one", agent=_AGENT, task="Say so.")], origin="bench")
        return MakePlanResponse(plan=plan)


async def _serve() -> None:
    settings = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
    server = ServerSettings.load(host="127.0.0.1", port=0, drain_delay_s=0.0, grace_s=1.0)
    async with AsyncExitStack() as stack:
        telemetry = stack.enter_context(setup_telemetry("short-harness", settings))
        enter = stack.enter_async_context
        planner = Servicer(
            OneStepPlanner(), add_PlannerServiceServicer_to_server, "bos.planner.v1.PlannerService"
        )
        composer = Servicer(
            FixedComposer(),
            add_ComposerServiceServicer_to_server,
            "bos.composer.v1.ComposerService",
        )
        agent = agent_server(
            EchoAgent(_AGENT), telemetry=telemetry, max_concurrent_steps=_MORE_STEPS_THAN_EVER
        )
        addresses = {
            "planner": (await enter(grpc_server(server, [planner], telemetry=telemetry))).address,
            "composer": (await enter(grpc_server(server, [composer], telemetry=telemetry))).address,
            "agents": f"{_AGENT}={await enter(agent)}",
        }
        print(json.dumps(addresses), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve())
