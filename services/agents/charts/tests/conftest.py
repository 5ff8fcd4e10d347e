from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from bos.agent.v1 import AgentInput, AgentResult, AgentServiceStub, ExecuteRequest
from bos_charts.service import serve
from bos_charts.settings import ChartsSettings
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value, to_value_map
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos_testkit.scripted_model.replies import Fixture


@dataclass
class Outcome:
    """Outcome of one step: result and files."""

    result: AgentResult
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)


@dataclass
class Charts:
    """A real agent service with its drawing processes and a scripted model."""

    stub: Any
    model: ScriptedModel | None

    async def do(
        self,
        task: str,
        *,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> Outcome:
        request = AgentInput(
            agent_id="step_1",
            agent_name="charts",
            task=task,
            sub_task_input={name: to_value(value) for name, value in (inputs or {}).items()},
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            **more,
        )
        outcome, name = Outcome(AgentResult()), ""
        async for message in self.stub.Execute(ExecuteRequest(input=request), timeout=110):
            match message.WhichOneof("payload"):
                case "result":
                    outcome.result = message.result
                case "file":
                    name = message.file.name or name
                    kind, content = outcome.files.get(name, (message.file.media_type, b""))
                    outcome.files[name] = (kind, content + message.file.content)
        return outcome


def charts_settings(**changes: Any) -> ChartsSettings:
    """Settings that do not depend on the speed of the machine."""
    return ChartsSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        auth=AuthSettings.load(),
        **{"render_timeout_s": 60.0, **changes},
    )


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: AsyncExitStack) -> Any:
    """Start the agent with fixtures of the scripted model; with none it has no model."""

    async def start(*fixtures: Fixture, **settings: Any) -> Charts:
        telemetry = Telemetry.for_tests("charts")
        scripted = models = None
        if fixtures:
            scripted = await stack.enter_async_context(ScriptedModel(fixtures))
            access = model_settings(scripted, max_attempts=1)
            models = await stack.enter_async_context(Models(access, telemetry))
        loaded = charts_settings(**settings)
        server = await stack.enter_async_context(serve(loaded, telemetry, models=models))
        options = [("grpc.max_receive_message_length", 8 * 1024 * 1024)]
        channel = await stack.enter_async_context(
            grpc.aio.insecure_channel(server.address, options=options)
        )
        return Charts(AgentServiceStub(channel), scripted)

    return start
