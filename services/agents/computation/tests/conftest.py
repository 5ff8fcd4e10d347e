from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    DescribeRequest,
    ExecuteRequest,
)
from bos.common.v1 import TraceEventType
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value, to_value_map
from bos_computation.service import serve
from bos_computation.settings import ComputationSettings
from bos_llm import Models
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.agent.v1 import AgentCard
    from bos.common.v1 import TraceEvent
    from bos_testkit.scripted_model.replies import Fixture


@dataclass
class Outcome:
    """Outcome of one step: trace and result."""

    result: AgentResult
    trace: list[TraceEvent] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def partial(self) -> dict[str, Any]:
        return from_value_map(self.result.partial_data)

    def messages(self, kind: str) -> list[str]:
        wanted = TraceEventType.Value(f"TRACE_EVENT_TYPE_{kind}")
        return [event.message for event in self.trace if event.type == wanted]


@dataclass
class Computation:
    """A real agent service with a real sandbox and a scripted model."""

    stub: Any
    model: ScriptedModel

    async def card(self) -> AgentCard:
        return (await self.stub.Describe(DescribeRequest(), timeout=10)).card

    def start(
        self,
        task: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        timeout_s: float = 30,
        **more: Any,
    ) -> Any:
        """Call ``Execute`` for one step."""
        request = AgentInput(
            agent_id="step_1",
            agent_name="computation",
            task=task,
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            **more,
        )
        return self.stub.Execute(ExecuteRequest(input=request), timeout=timeout_s)

    async def do(self, task: str, **more: Any) -> Outcome:
        outcome = Outcome(AgentResult())
        async for message in self.start(task, **more):
            if message.HasField("result"):
                outcome.result = message.result
            outcome.trace.extend(message.trace.events)
        return outcome

    def prompts(self, schema: str) -> list[str]:
        return [request.prompt for request in self.model.requests if request.schema == schema]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def sandbox_settings(**changes: Any) -> SandboxSettings:
    """Settings of a small sandbox."""
    return SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        kill_grace_s=0.25,
        warm_workers=1,
        max_workers=2,
        **changes,
    )


@pytest.fixture
async def sandbox_address() -> AsyncIterator[str]:
    settings = sandbox_settings(timeout_s=2)
    async with serve_sandbox(settings, Telemetry.for_tests("sandbox")) as server:
        yield server.address


@pytest.fixture
async def patient_sandbox_address() -> AsyncIterator[str]:
    """Address of a sandbox whose own limits are never reached in a test."""
    settings = sandbox_settings(timeout_s=300, process_enabled=False)
    async with serve_sandbox(settings, Telemetry.for_tests("sandbox")) as server:
        yield server.address


@pytest.fixture
def start(stack: AsyncExitStack, sandbox_address: str) -> Any:
    """Start the agent with fixtures of the scripted model."""

    async def start(
        *fixtures: Fixture,
        sandbox: str = sandbox_address,
        models: bool = True,
        key: bool = True,
        **settings: Any,
    ) -> Computation:
        telemetry = Telemetry.for_tests("computation")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        if not key:
            access = model_settings(scripted, base_url=None, api_key=None)
        loaded = ComputationSettings.load(
            server=ServerSettings(reflection=False, grace_s=1),
            auth=AuthSettings.load(),
            sandbox_target=sandbox,
            **settings,
        )
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address))
        return Computation(AgentServiceStub(channel), scripted)

    return start
