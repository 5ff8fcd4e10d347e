"""A gateway that may be killed, behind the protocols service and REST, for signed-in users."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from secrets import token_hex
from typing import Any

import aiohttp
from gateway_harness.harness import SHORT_LEASE, gateway_process
from gateway_harness.harness import Harness as GatewayHarness
from gateway_harness.harness import open_harness as open_gateway_harness
from token_issuer import ISSUER, Issuer, key_file

from bos.agent.v1 import AgentResult
from bos.planner.v1 import MakePlanResponse
from bos_agentkit import AgentTask, succeeded
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import make_table
from bos_memory.service import serve as serve_memory
from bos_memory.settings import MemorySettings
from bos_protocols.service import ProtocolsServer
from bos_protocols.service import serve as serve_protocols
from bos_protocols.settings import ProtocolsSettings
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.processes import free_port

PIECES = ["It ", "is ", "done."]
ANSWER = "".join(PIECES)
QUESTION_BACK = "Which year?"
COLUMNS = ["name", "amount"]
ROWS = [["Ada", "1.50"], ["Grace", "2.25"]]
TABLE = make_table(COLUMNS, [[name, Decimal(amount)] for name, amount in ROWS])
DEPLOYMENT = "deploy shop-web 1.2"
_AWAY = 503
_PAUSE_S = 0.05


class Desk(DeployAgent):
    """Deploys after approval; has a table for every other task."""

    async def behave(self, task: AgentTask) -> AgentResult:
        """Deploy, or answer with the table."""
        if DEPLOYMENT in task.effective_task:
            return await super().behave(task)
        return succeeded(task, answer="A table.", table=TABLE)


@dataclass
class Harness:
    """What runs, and what the next question leads to."""

    gateway: GatewayHarness
    agent: Desk
    issuer: Issuer
    settings: dict[str, object]
    stack: AsyncExitStack
    port: int = field(default_factory=free_port)
    rest_url: str = ""
    protocols: ProtocolsServer | None = None
    users: str = ""
    """Behind the name of each user of the current test."""
    _running: AsyncExitStack | None = None

    @property
    def target(self) -> str:
        """Address of the gateway, whichever process it is."""
        return f"127.0.0.1:{self.port}"

    def token(self, user: str = "ada") -> str:
        """An access token, good for an hour."""
        return self.issuer.token(sub=user + self.users, exp=time.time() + 3600)

    async def renew(self) -> None:
        """As at the start: what a test has changed is undone, and its users ask no more."""
        planner, composer = self.gateway.planner, self.gateway.composer
        planner.before = planner.answer = None
        planner.requests.clear()
        if composer.release is not None:
            composer.release.set()
        composer.deltas, composer.output, composer.release = list(PIECES), None, None
        self.agent.effects.clear()
        self.users = f"-{token_hex(4)}"
        self.plan()
        if self._running is None:
            await self.start_gateway()
        await self.answers()

    async def answers(self) -> None:
        """Return once REST and protocols have found the gateway."""
        headers = {"Authorization": f"Bearer {self.token()}"}
        async with asyncio.timeout(120), aiohttp.ClientSession(headers=headers) as http:
            while True:
                async with http.get(f"{self.rest_url}/v1/models") as reply:
                    if reply.status != _AWAY:
                        return
                await asyncio.sleep(_PAUSE_S)

    def plan(self, task: str = "look it up") -> None:
        """Questions lead to one step with this task."""
        planned = step("a", "deploy", task)
        if task == DEPLOYMENT:
            planned.tools.append("trigger_deployment")
        self.gateway.planner.steps = [planned]

    def plan_by_question(self) -> None:
        """Questions about production lead to a deployment, others to a table."""

        async def before() -> None:
            question = self.gateway.planner.requests[-1].question
            self.plan(DEPLOYMENT if "production" in question else "look it up")

        self.gateway.planner.before = before

    def ask_back(self) -> None:
        """Questions lead to a question back where nothing is settled yet, replies to a plan."""
        self.plan()
        planner, asking = self.gateway.planner, MakePlanResponse()
        asking.clarification.questions.add(question=QUESTION_BACK, options=["2025", "2026"])

        async def before() -> None:
            planner.answer = None if planner.requests[-1].clarifications else asking

        planner.before = before

    async def start_gateway(self) -> None:
        """Start the gateway, at the same address each time."""
        assert self._running is None
        self._running = AsyncExitStack()
        await self._running.enter_async_context(
            gateway_process(self.gateway, server__port=self.port, **self.settings)
        )

    async def kill_gateway(self) -> None:
        """``kill -9``: leaving the process's block kills it."""
        assert self._running is not None
        running, self._running = self._running, None
        await running.aclose()


@asynccontextmanager
async def another_replica(harness: Harness, **settings: Any) -> AsyncIterator[str]:
    """URL of other protocols to the same gateway."""
    own = ProtocolsSettings.load(
        server=ServerSettings.load(port=0, grace_s=0.2), gateway_target=harness.target, **settings
    )
    async with serve_protocols(own, Telemetry.for_tests("protocols")) as protocols:
        yield f"http://{protocols.address}"


async def run(*program: str, cwd: Path, **environment: str) -> str:
    """What a program prints; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *program,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    printed, errors = await process.communicate()
    assert process.returncode == 0, (printed + errors).decode()
    return printed.decode()


async def _memory(stack: AsyncExitStack, dsn: str) -> str:
    """Memory, beside the gateway's tables; returns its address."""
    settings = MemorySettings.load(
        server=ServerSettings.load(grace_s=0.1),
        auth=AuthSettings.load(),
        telemetry=TelemetrySettings.load(),
        store_url=dsn,
    )
    telemetry = Telemetry.for_tests("memory")
    memory = await stack.enter_async_context(serve_memory(settings, telemetry, models=None))
    return memory.address


@asynccontextmanager
async def open_harness(dsn: str, folder: Path) -> AsyncIterator[Harness]:
    """Everything, up, with a plan that answers at once."""
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    issuer, telemetry = Issuer(), Telemetry.for_tests("protocols")
    keys = key_file(folder, issuer.jwk)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_gateway_harness(dsn))
        agent = Desk()
        await gateway.add_agent(agent)
        gateway.composer.deltas = list(PIECES)
        settings: dict[str, object] = {
            **SHORT_LEASE,
            "auth__issuer": ISSUER,
            "auth__jwks_file": str(keys),
            "memory_target": await _memory(stack, dsn),
        }
        harness = Harness(gateway, agent, issuer, settings, stack)
        harness.plan()
        await harness.start_gateway()
        stack.push_async_callback(harness.kill_gateway)
        harness.protocols = await stack.enter_async_context(
            serve_protocols(
                ProtocolsSettings.load(
                    server=ServerSettings.load(port=0, grace_s=0.2),
                    a2a_server=ServerSettings.load(port=0, grace_s=0.2),
                    gateway_target=harness.target,
                ),
                telemetry,
            )
        )
        rest = await stack.enter_async_context(
            serve_rest(
                binary,
                gateway_target=harness.target,
                protocols_target=harness.protocols.address,
                ports=(0,),
                grace_s=0.2,
                log=telemetry.logger("bos.rest"),
            )
        )
        harness.rest_url = rest.url
        yield harness
