"""An agent that keeps the contract, and one for each rule that does not.

``python -m contract_agents`` serves the first as a process of its own, which wants the variable
``GRPC_ENABLE_FORK_SUPPORT=0``, as this module imports gRPC before anything of ours.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import grpc

from bos.agent.v1 import (
    AgentCard,
    AgentResult,
    ExecuteResponse,
    SideEffectClass,
    add_AgentServiceServicer_to_server,
)
from bos_agentkit import (
    UNTRUSTED_NOTICE,
    AgentServiceSettings,
    AgentTask,
    agent_card,
    agent_service,
    serve_agent,
    tool,
)
from bos_agentkit.agent import Agent
from bos_agentkit.results import succeeded
from bos_agentkit.serving.servicer import AgentServicer
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_llm import Model, Models, system, user

NAME = "honest"
MARKS: list[str] = []
"""Effects that happened in this process."""


class HonestAgent(Agent):
    """Asks its model once; leaves a mark if a person approved it."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @tool(
        description="Leaves a mark that stays.",
        requires_approval=True,
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
    )
    async def leave_mark(self, label: str) -> dict[str, Any]:
        MARKS.append(label)
        return {"label": label}

    card = agent_card(
        NAME,
        "Asks a model, and leaves marks.",
        typical_use_cases=["What does the model say?"],
        keywords=["model"],
        tools=[leave_mark],
    )

    async def execute(self, task: AgentTask) -> AgentResult:
        said = await self.ask(task)
        if task.input.tool_name == "leave_mark":
            await task.tools.call("leave_mark", label="here")
        return succeeded(task, answer=said)

    role = UNTRUSTED_NOTICE

    def prompt(self, task: AgentTask) -> str:
        sections = [*task.user_sections, ("Task", "Say a word.")]
        return "\n\n".join(f"### {heading}\n{body}" for heading, body in sections)

    async def ask(self, task: AgentTask) -> str:
        completion = await self.model.text([system(self.role), user(self.prompt(task))])
        task.usage.add(completion.usage)
        task.trace.message("asked")
        return completion.text


class WithoutUseCases(HonestAgent):
    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.card = _changed_card(self.card)


def _changed_card(card: AgentCard) -> AgentCard:
    changed = type(card)()
    changed.CopyFrom(card)
    changed.ClearField("typical_use_cases")
    return changed


class Forgetful(HonestAgent):
    """Says something else each time."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._times = 0

    async def ask(self, task: AgentTask) -> str:
        self._times += 1
        return f"{await super().ask(task)} {self._times}"


class Trusting(HonestAgent):
    """Takes the name of a tool for one that it has."""

    async def execute(self, task: AgentTask) -> AgentResult:
        {"": 1, "leave_mark": 2}[task.input.tool_name]
        return await super().execute(task)


class Impersonal(HonestAgent):
    """Asks its model without a word of who it works for."""

    def prompt(self, task: AgentTask) -> str:
        return "Say a word."


class Credulous(HonestAgent):
    """Does not tell its model that fenced text is data."""

    role = "You say words."


class Hasty(HonestAgent):
    """Leaves the mark first and asks then."""

    async def execute(self, task: AgentTask) -> AgentResult:
        if task.input.tool_name == "leave_mark":
            MARKS.append("too early")
        return await super().execute(task)


class Careless(HonestAgent):
    """Reports an unapproved action as performed."""

    async def perform(self, task: AgentTask, actions: Any) -> AgentResult:
        return succeeded(task, answer="Done.")


class Talkative(HonestAgent):
    """Writes its credentials into the trace."""

    async def execute(self, task: AgentTask) -> AgentResult:
        task.trace.message("connecting", **dict(task.input.secrets))
        return await super().execute(task)


class Deaf(HonestAgent):
    """Goes on with its model when its step has ended, and knows of no deadline."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._going_on: set[asyncio.Task[str]] = set()

    async def ask(self, task: AgentTask) -> str:
        work = asyncio.create_task(super().ask(task), context=Context())
        self._going_on.add(work)
        return await asyncio.shield(work)


class Changing(AgentServicer):
    """Changes what the kit would send."""

    async def Execute(self, request: Any, context: Any) -> AsyncIterator[ExecuteResponse]:
        async for message in super().Execute(request, context):
            for sent in self.change(message, request):
                yield sent

    def change(self, message: ExecuteResponse, request: Any) -> list[ExecuteResponse]:
        raise NotImplementedError


class Nameless(Changing):
    def change(self, message: ExecuteResponse, request: Any) -> list[ExecuteResponse]:
        if message.HasField("result"):
            message.result.ClearField("agent_name")
        return [message]


class Timeless(Changing):
    def change(self, message: ExecuteResponse, request: Any) -> list[ExecuteResponse]:
        for event in message.trace.events:
            event.ClearField("create_time")
        return [message]


class Laundering(Changing):
    def change(self, message: ExecuteResponse, request: Any) -> list[ExecuteResponse]:
        if message.HasField("result"):
            message.result.tainted = False
        return [message]


class Confused(Changing):
    """Takes the last step that came for the one that it is doing."""

    last = ""

    async def Execute(self, request: Any, context: Any) -> AsyncIterator[ExecuteResponse]:
        self.last = request.input.agent_id
        async for message in super().Execute(request, context):
            yield message

    def change(self, message: ExecuteResponse, request: Any) -> list[ExecuteResponse]:
        if message.HasField("result"):
            message.result.agent_id = self.last
        return [message]


class Greedy(AgentServicer):
    """Takes any number of steps."""

    def __init__(self, *args: Any, max_concurrent_steps: int, **more: Any) -> None:
        super().__init__(*args, max_concurrent_steps=1000 * max_concurrent_steps, **more)


@dataclass
class Serving:
    """How one of these agents is served; what an agent's ``service.py`` would do."""

    models: Models
    telemetry: Telemetry
    agent: Callable[[Model], Agent] = HonestAgent
    servicer: type[AgentServicer] = AgentServicer
    bare: bool = False
    """Without the chassis: no health, no checks of requests, no traces."""
    auth: dict[str, Any] = field(default_factory=dict)
    """What the service makes of its settings of authentication."""
    audience: str = NAME

    @asynccontextmanager
    async def __call__(
        self, *, auth: AuthSettings, max_concurrent_steps: int
    ) -> AsyncIterator[str]:
        """Serve it; yields the address."""
        servicer = self.servicer(
            self.agent(self.models.for_agent(NAME)),
            self.telemetry,
            max_concurrent_steps=max_concurrent_steps,
        )
        if self.bare:
            server = grpc.aio.server()
            add_AgentServiceServicer_to_server(servicer, server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                yield f"127.0.0.1:{port}"
            finally:
                await server.stop(1)
            return
        offered = Servicer(
            servicer, add_AgentServiceServicer_to_server, "bos.agent.v1.AgentService"
        )
        tokens = open_run_tokens(
            auth.model_copy(update=self.auth), self.audience, self.telemetry, accepts="agent"
        )
        settings = ServerSettings(port=0, grace_s=1.0)
        async with (
            tokens as caller,
            grpc_server(settings, [offered], telemetry=self.telemetry, auth=caller) as running,
        ):
            yield running.address


@asynccontextmanager
async def serve(
    settings: AgentServiceSettings, telemetry: Telemetry, *, models: Models
) -> AsyncIterator[GrpcServer]:
    """The honest agent as people run it."""
    agent = HonestAgent(models.for_agent(NAME))
    async with agent_service(settings, telemetry, agent) as server:
        yield server


if __name__ == "__main__":
    serve_agent(NAME, AgentServiceSettings, serve)
