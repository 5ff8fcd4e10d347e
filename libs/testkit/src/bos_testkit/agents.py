"""Small agents with one behaviour each, served for real, and a client to call them.

::

    agent = SlowAgent("slow")
    async with agent_server(agent) as address:
        trace, result = await call_agent(address, AgentInput(task="wait"))
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from bos.agent.v1 import AgentServiceStub, ExecuteRequest, SideEffectClass
from bos_agentkit import (
    Agent,
    AgentFailure,
    AgentServiceSettings,
    ToolContext,
    agent_card,
    agent_service,
    format_dependencies,
    format_entities,
    prompt_sections,
    succeeded,
    tool,
)
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import AgentErrorType
from bos_llm import user

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.agent.v1 import AgentCard, AgentInput, AgentResult, TaskMetadata
    from bos.common.v1 import TraceEvent
    from bos_agentkit import AgentTask
    from bos_llm import Model

_KEPT_INPUTS = 1000


class RecordingAgent(Agent):
    """Base of the recording agents: a name of one's choice, and the inputs that arrived."""

    def __init__(self, name: str, *, card: AgentCard | None = None) -> None:
        self.card = card or agent_card(name, f"Test agent {name}.", capabilities=[name])
        self.inputs: deque[AgentInput] = deque(maxlen=_KEPT_INPUTS)
        """Inputs in order of arrival, the last 1000."""

    async def execute(self, task: AgentTask) -> AgentResult:
        """Record the input, then do what the subclass does."""
        self.inputs.append(task.input)
        return await self.behave(task)

    async def behave(self, task: AgentTask) -> AgentResult:
        """Succeed with the task as answer."""
        return succeeded(task, answer=task.effective_task)


class FileAgent(RecordingAgent):
    """Succeeds with the files it is given, by name; their media type is that of the dictionary."""

    def __init__(self, name: str, files: Mapping[str, tuple[str, bytes]]) -> None:
        super().__init__(name)
        self.files = files

    async def behave(self, task: AgentTask) -> AgentResult:
        """Attach the files."""
        for name, (media_type, content) in self.files.items():
            task.attach_file(name, media_type, content)
        return succeeded(task, answer="see the files")


class OneCallAgent(RecordingAgent):
    """Asks the model once and answers with what it says, also as ``data[name]``."""

    def __init__(self, model: Model, name: str = "one_call", **card: Any) -> None:
        super().__init__(name, **card)
        self._model = model

    async def behave(self, task: AgentTask) -> AgentResult:
        """One text call."""
        prompt = prompt_sections(
            task=task.effective_task,
            entities=format_entities(task.input.entities),
            dependencies=format_dependencies(task.input.dependency_outputs),
            source_text=task.effective_task,
            instructions="Answer the task.",
            profile=task.profile,
        )
        completion = await self._model.text([user(prompt)])
        task.usage.add(completion.usage)
        task.trace.decision("answered", characters=len(completion.text))
        return succeeded(task, answer=completion.text, data={self.card.name: completion.text})


class EchoAgent(RecordingAgent):
    """Succeeds with ``data`` or else with what it was given; needs no model.

    Without ``data`` the fields are those of ``sub_task_input`` plus ``task`` and ``dependencies``.
    """

    def __init__(
        self, name: str = "echo", *, data: Mapping[str, Any] | None = None, **card: Any
    ) -> None:
        super().__init__(name, **card)
        self._data = data

    async def behave(self, task: AgentTask) -> AgentResult:
        """Echo."""
        given = {
            "task": task.effective_task,
            "dependencies": task.dependencies,
            **task.arguments,
        }
        data = given if self._data is None else self._data
        return succeeded(task, answer=task.effective_task, data=data)


class PreparingAgent(RecordingAgent):
    """Reads ahead until ``release`` is set or it is cancelled, then raises ``error`` if given."""

    def __init__(
        self, name: str = "preparing", *, error: Exception | None = None, **card: Any
    ) -> None:
        super().__init__(name, **card)
        self._error = error
        self.prepared: deque[tuple[TaskMetadata, str]] = deque(maxlen=_KEPT_INPUTS)
        """For whom, and the question, in order of arrival."""
        self.started = asyncio.Event()
        """Reading ahead has begun."""
        self.release = asyncio.Event()
        """Set it to let it end."""
        self.cancelled = asyncio.Event()
        """Reading ahead was cancelled."""

    async def prepare(self, metadata: TaskMetadata, question: str) -> None:
        """Record the call, then wait."""
        self.prepared.append((metadata, question))
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        if self._error is not None:
            raise self._error


class FailingAgent(RecordingAgent):
    """Raises ``error`` on the first ``times`` steps (all of them if None), then succeeds."""

    def __init__(
        self,
        name: str = "failing",
        *,
        error: Exception | None = None,
        times: int | None = None,
        partial: Mapping[str, Any] | None = None,
        **card: Any,
    ) -> None:
        super().__init__(name, **card)
        self._error = error or AgentFailure(AgentErrorType.HTTP_ERROR, "The other side is broken.")
        self._times = times
        self._partial = dict(partial or {})
        self.failures = 0

    async def behave(self, task: AgentTask) -> AgentResult:
        """Fail."""
        task.partial(**self._partial)
        if self._times is None or self.failures < self._times:
            self.failures += 1
            raise self._error
        return await super().behave(task)


class SlowAgent(RecordingAgent):
    """Works until ``release`` is set or it is cancelled; both are seen from outside."""

    def __init__(
        self, name: str = "slow", *, partial: Mapping[str, Any] | None = None, **card: Any
    ) -> None:
        super().__init__(name, **card)
        self._partial = dict(partial or {})
        self.started = asyncio.Event()
        """A step has begun."""
        self.release = asyncio.Event()
        """Set it to let the steps succeed."""
        self.cancelled = asyncio.Event()
        """A step was cancelled."""

    async def behave(self, task: AgentTask) -> AgentResult:
        """Wait."""
        task.partial(**self._partial)
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return await super().behave(task)


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect that really happened."""

    label: str
    idempotency_key: str


class CountingAgent(RecordingAgent):
    """Has one effect per step, through the tool ``leave_mark``, and counts them.

    The label of the effect is the input's argument ``label``, or else the task.

    Args:
        name: Name of the agent.
        protected: Whether the effect needs approval.
        side_effect: What the card declares.
    """

    def __init__(
        self,
        name: str = "counting",
        *,
        protected: bool = False,
        side_effect: SideEffectClass = SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
    ) -> None:
        @tool(
            description="Leaves a mark that can be counted.",
            requires_approval=protected,
            side_effect=side_effect,
            summary="Leave the mark “{label}”",
        )
        async def leave_mark(label: str, context: ToolContext) -> dict[str, Any]:
            self.effects.append(Effect(label, context.idempotency_key))
            return {"mark": label, "count": len(self.effects)}

        self.effects: list[Effect] = []
        self.tools = (leave_mark,)
        super().__init__(name, card=agent_card(name, "Leaves marks.", tools=self.tools))

    async def behave(self, task: AgentTask) -> AgentResult:
        """Leave the mark, or ask for approval."""
        label = str(task.arguments.get("label", task.effective_task))
        data = await task.tools.call("leave_mark", label=label)
        return succeeded(task, answer=f"Left the mark {label}.", data=data)


@asynccontextmanager
async def agent_server(
    agent: Agent,
    *,
    telemetry: Telemetry | None = None,
    max_concurrent_steps: int = 64,
    auth: AuthSettings | None = None,
    step_timeout_s: float | None = None,
) -> AsyncIterator[str]:
    """Serve ``agent`` on a free loopback port, as in production; yields the address."""
    settings = AgentServiceSettings(
        server=ServerSettings(port=0, grace_s=1.0),
        auth=auth or AuthSettings(),
        max_concurrent_steps=max_concurrent_steps,
        step_timeout_s=step_timeout_s,
    )
    async with agent_service(
        settings, telemetry or Telemetry.for_tests(agent.card.name), agent
    ) as server:
        yield server.address


async def call_agent(
    address: str, input: AgentInput, *, timeout_s: float = 10.0
) -> tuple[list[TraceEvent], AgentResult]:
    """Execute one step through gRPC; the trace events and the result.

    Raises:
        grpc.aio.AioRpcError: the call was refused.
        ValueError: the stream did not end with exactly one result.
    """
    events: list[TraceEvent] = []
    results: list[AgentResult] = []
    async with grpc.aio.insecure_channel(address) as channel:
        call = AgentServiceStub(channel).Execute(ExecuteRequest(input=input), timeout=timeout_s)
        try:
            async for response in call:
                if results:
                    raise ValueError("something followed the result")
                if response.WhichOneof("payload") == "result":
                    results.append(response.result)
                else:
                    events.extend(response.trace.events)
        finally:
            call.cancel()
    if not results:
        raise ValueError("the stream ended without a result")
    return events, results[0]
