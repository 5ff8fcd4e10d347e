from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import (
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ApprovalContext,
    DescribeRequest,
    ExecuteRequest,
)
from bos.common.v1 import TraceEventType
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value, to_value_map
from bos_code.service import serve
from bos_code.settings import CodeSettings
from bos_llm import Models
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.agent.v1 import AgentCard, ProposedAction
    from bos.common.v1 import TraceEvent
    from bos_testkit.scripted_model.replies import Fixture


@dataclass
class Outcome:
    """Outcome of one step: trace, files, result."""

    result: AgentResult
    trace: list[TraceEvent] = field(default_factory=list)
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def partial(self) -> dict[str, Any]:
        return from_value_map(self.result.partial_data)

    @property
    def action(self) -> ProposedAction:
        (action,) = self.result.proposed_actions
        return action

    def messages(self, kind: str) -> list[str]:
        wanted = TraceEventType.Value(f"TRACE_EVENT_TYPE_{kind}")
        return [event.message for event in self.trace if event.type == wanted]


@dataclass
class Code:
    """A real agent service with a real sandbox and a scripted model."""

    stub: Any
    model: ScriptedModel

    async def card(self) -> AgentCard:
        return (await self.stub.Describe(DescribeRequest(), timeout=10)).card

    async def do(
        self,
        task: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        approved: ProposedAction | None = None,
        tools: tuple[str, ...] = ("execute_code",),
        **more: Any,
    ) -> Outcome:
        """Execute one step; with ``approved``, the execution after the approval."""
        request = AgentInput(
            agent_id="step_1",
            agent_name="code",
            task=task,
            tools=tools,
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            **more,
        )
        request.context.update({"current_date": "2026-06-15"})
        if approved is not None:
            request.approval_context.CopyFrom(
                ApprovalContext(approval_id="a1", approved_actions=[approved])
            )
        outcome, name = Outcome(AgentResult()), ""
        async for message in self.stub.Execute(ExecuteRequest(input=request), timeout=60):
            match message.WhichOneof("payload"):
                case "result":
                    outcome.result = message.result
                case "file":
                    name = message.file.name or name
                    kind, content = outcome.files.get(name, (message.file.media_type, b""))
                    outcome.files[name] = (kind, content + message.file.content)
                case _:
                    outcome.trace.extend(message.trace.events)
        return outcome

    def prompts(self, schema: str) -> list[str]:
        return [request.prompt for request in self.model.requests if request.schema == schema]


def sandbox_settings(**changes: Any) -> SandboxSettings:
    """Settings of a small sandbox."""
    return SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        warm_workers=1,
        process_warm_workers=0,
        timeout_s=30,
        **changes,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox_address() -> AsyncIterator[str]:
    """Address of a real sandbox, shared by all tests because its start takes seconds."""
    async with serve_sandbox(sandbox_settings(), Telemetry.for_tests("sandbox")) as server:
        yield server.address


@pytest_asyncio.fixture(loop_scope="module")
async def small_sandbox_address() -> AsyncIterator[str]:
    """Address of a sandbox without the process tier, as without user namespaces."""
    settings = sandbox_settings(process_enabled=False)
    async with serve_sandbox(settings, Telemetry.for_tests("sandbox")) as server:
        yield server.address


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: AsyncExitStack, sandbox_address: str) -> Any:
    """Start the agent with fixtures of the scripted model."""

    async def start(
        *fixtures: Fixture,
        models: bool = True,
        key: bool = True,
        sandbox: str = sandbox_address,
        **settings: Any,
    ) -> Code:
        telemetry = Telemetry.for_tests("code")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        if not key:
            access = model_settings(scripted, base_url=None, api_key=None)
        loaded = CodeSettings.load(
            server=ServerSettings(reflection=False, grace_s=1),
            auth=AuthSettings.load(),
            sandbox_target=sandbox,
            program_timeout_s=30,
            **settings,
        )
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared))
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(
                server.address, options=[("grpc.max_receive_message_length", 8 * 1024 * 1024)]
            )
        )
        return Code(AgentServiceStub(channel), scripted)

    return start
