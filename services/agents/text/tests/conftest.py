from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from bos.agent.v1 import AgentInput
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value, to_value_map
from bos_llm import Models
from bos_testkit.agents import call_agent
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel
from bos_text.service import serve
from bos_text.settings import TextSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.agent.v1 import AgentResult
    from bos_testkit.scripted_model.replies import Fixture


class Texts:
    """The agent as a service, with a scripted model."""

    def __init__(self, address: str, model: ScriptedModel) -> None:
        self._address = address
        self.model = model

    async def do(
        self,
        task: str,
        tool: str = "",
        *,
        outputs: Mapping[str, Mapping[str, Any]] | None = None,
        tainted: bool = False,
        **inputs: Any,
    ) -> AgentResult:
        """Do one step; further arguments are the plan's input."""
        step = AgentInput(
            task=task,
            tool_name=tool,
            tainted=tainted,
            dependency_outputs={k: to_value_map(v) for k, v in (outputs or {}).items()},
            sub_task_input={name: to_value(value) for name, value in inputs.items()},
        )
        _, result = await call_agent(self._address, step)
        return result

    @property
    def prompts(self) -> list[str]:
        return [request.prompt for request in self.model.requests]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: AsyncExitStack) -> Any:
    """Start the agent with fixtures of the scripted model."""

    async def start(*fixtures: Fixture, models: bool = True, **settings: Any) -> Texts:
        telemetry = Telemetry.for_tests("text")
        scripted = await stack.enter_async_context(ScriptedModel(fixtures))
        access = model_settings(scripted, max_attempts=1)
        loaded = TextSettings.load(
            server=ServerSettings(port=0, reflection=False, grace_s=1),
            auth=AuthSettings.load(),
            **settings,
        )
        shared = await stack.enter_async_context(Models(access, telemetry)) if models else None
        server = await stack.enter_async_context(serve(loaded, telemetry, models=shared))
        return Texts(server.address, scripted)

    return start
