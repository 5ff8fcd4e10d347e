"""Gateways as processes of their own, REST before each, and an agent that asks before it acts.

Every worker is one gateway with one REST in front of it; all of them share one PostgreSQL, and the
real planner and composer around one scripted model.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_llm import Models
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.agents import agent_server
from bos_testkit.deploy import DeployAgent
from bos_testkit.forked import ForkedProcess, forked_process
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

DEPLOY, ROLL_BACK, BOTH = "Deploy", "Roll back", "Deploy and look at"
TIMEOUT_S = 1.5
"""Time for deciding about a roll-back; all else has the default of two minutes."""
_SERVICE = r"### Question\n.* (shop-[a-z-]+)\n"


def _planned(question: str, *steps: tuple[str, str, str | None]) -> Fixture:
    """Questions that begin like this, about a service, become these steps of the agent."""
    listed = [
        {"step_id": name, "agent": "deploy", "task": task, "tool_name": tool}
        for name, task, tool in steps
    ]
    return fixture(
        f"plan of {question}",
        [f"### Question\n{question} shop-"],
        schema="PlannerReply",
        capture={"service": _SERVICE},
        json={"intent": "DATA_QA", "agents": ["deploy"], "confidence": 0.9, "steps": listed},
    )


_DEPLOYING = ("a", "deploy ${service} 1.2", "trigger_deployment")
FIXTURES = [
    _planned(DEPLOY, _DEPLOYING),
    _planned(ROLL_BACK, ("a", "roll back ${service}", "rollback_deployment")),
    _planned(BOTH, _DEPLOYING, ("look", "status of ${service}", None)),
    *(
        fixture(mode, [f"### Instructions\n{mode}"], schema="Classification", json={"mode": mode})
        for mode in ("enhance", "override")
    ),
]


@dataclass
class Worker:
    target: str
    process: ForkedProcess
    rest_url: str = ""

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@dataclass
class ApprovalHarness:
    """What workers need around them."""

    agent: DeployAgent
    environment: dict[str, str]
    stack: AsyncExitStack
    workers: list[Worker] = field(default_factory=list)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        binary = find_binary(None)
        assert binary is not None, "build it first: make rest"
        async with self.gateway() as worker:
            log = Telemetry.for_tests("rest").logger("bos.rest")
            async with serve_rest(
                binary, gateway_target=worker.target, ports=(0,), grace_s=0.2, log=log
            ) as rest:
                worker.rest_url = rest.url
                yield worker

    @asynccontextmanager
    async def gateway(self, port: int = 0) -> AsyncIterator[Worker]:
        """One more gateway alone; killed at the end if it still runs."""
        environment = {**os.environ, **self.environment, "BOS_GATEWAY_SERVER__PORT": str(port)}
        started = forked_process(
            "-m", "bos_gateway", environment=environment, imported=("bos_gateway.service",)
        )
        async with started as process:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            yield Worker(json.loads(line)["address"], process)


@asynccontextmanager
async def open_approval_harness(dsn: str) -> AsyncIterator[ApprovalHarness]:
    telemetry = Telemetry.for_tests("harness")
    server = ServerSettings(port=0, grace_s=0.2)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel(FIXTURES))
        models = await enter(Models(model_settings(model), telemetry))
        planner = await enter(
            serve_planner(PlannerSettings.load(server=server), telemetry, models=models)
        )
        composer = await enter(
            serve_composer(ComposerSettings.load(server=server), telemetry, models=models)
        )
        agent = DeployAgent()
        settings = {
            "STORE_URL": dsn,
            "PLANNER_TARGET": planner.address,
            "COMPOSER_TARGET": composer.address,
            "AGENT_TARGETS": f"deploy={await enter(agent_server(agent))}",
            "APPROVAL_TIMEOUTS": f"rollback_deployment={TIMEOUT_S}",
            # However busy the machine is, they keep their leases.
            "LEASE_S": "15",
            "SERVER__GRACE_S": "0.2",
        }
        environment = {f"BOS_GATEWAY_{name}": value for name, value in settings.items()}
        harness = ApprovalHarness(agent, environment, stack)
        for _ in range(2):
            harness.workers.append(await enter(harness.worker()))
        yield harness
