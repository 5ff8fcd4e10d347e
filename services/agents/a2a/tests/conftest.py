"""The A2A agent, served, with real remote agents below it and a scripted model."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from bos.agent.v1 import (
    AgentCard,
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ApprovalContext,
    DescribeRequest,
    ExecuteRequest,
    FileChunk,
    ProposedAction,
    TaskMetadata,
)
from bos.common.v1 import Clarification, ClarificationTurn, ClarifyingQuestion, TraceEvent
from bos_a2a.service import serve
from bos_a2a.settings import A2aSettings
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value_map
from bos_llm import Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

NAME = "billing"
NETWORKS = ["127.0.0.0/8"]


@dataclass
class Outcome:
    """Outcome of one step."""

    result: AgentResult
    files: list[FileChunk] = field(default_factory=list)
    events: list[TraceEvent] = field(default_factory=list)

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def action(self) -> ProposedAction:
        (action,) = self.result.proposed_actions
        return action

    @property
    def arguments(self) -> dict[str, Any]:
        return from_value_map(self.action.arguments)


@dataclass
class Specialist:
    """The agent, served."""

    stub: Any
    telemetry: Telemetry
    model: ScriptedModel
    runs: Any = field(default_factory=itertools.count)

    async def card(self) -> AgentCard:
        return (await self.stub.Describe(DescribeRequest(), timeout=30)).card

    async def away(self) -> str:
        """Why the agent says that it is unavailable; empty while it is not."""
        try:
            await self.card()
        except grpc.aio.AioRpcError as error:
            return str(error.details())
        return ""

    async def is_there(self) -> None:
        """Wait until the agent can be used."""
        async with asyncio.timeout(60):
            while await self.away():  # noqa: ASYNC110  it is asked as the gateway asks
                await asyncio.sleep(0.02)

    async def is_away(self) -> None:
        """Wait until the agent cannot be used."""
        async with asyncio.timeout(60):
            while not await self.away():  # noqa: ASYNC110  it is asked as the gateway asks
                await asyncio.sleep(0.02)

    def input(
        self,
        task: str = "Do it",
        message: str = "",
        *,
        run: str = "",
        attempt: int = 1,
        approved: Sequence[ProposedAction] = (),
        **fields: Any,
    ) -> ExecuteRequest:
        run = run or f"run-{next(self.runs)}"
        given: dict[str, Any] = {
            "agent_name": NAME,
            "task": task,
            "tools": ["send_message"],
            "metadata": TaskMetadata(
                user_id="asha", run_id=run, step_key=f"{run}/0/s", attempt=attempt
            ),
            "approval_context": ApprovalContext(approved_actions=approved),
        }
        if message:
            given["tool_name"] = "send_message"
            given["sub_task_input"] = to_value_map({"message": message}).fields
        return ExecuteRequest(input=AgentInput(**{**given, **fields}))

    async def step(self, task: str = "Do it", message: str = "", **fields: Any) -> Outcome:
        outcome = Outcome(AgentResult())
        async for response in self.stub.Execute(self.input(task, message, **fields), timeout=120):
            match response.WhichOneof("payload"):
                case "file":
                    outcome.files.append(response.file)
                case "trace":
                    outcome.events.extend(response.trace.events)
                case "result":
                    outcome.result.CopyFrom(response.result)
        return outcome


def replied(run: str, question: str, reply: str) -> ClarificationTurn:
    """The user's reply to a question that a run asked."""
    asked = Clarification(questions=[ClarifyingQuestion(question=question)])
    return ClarificationTurn(run_id=run, asked=asked, reply=reply)


def written(task: str, message: str, **reply: str) -> Fixture:
    """The model writes a message for ``task``."""
    return fixture(
        f"{task} {message}",
        [task],
        schema="AgentMessage",
        json={"reason": "It can.", "message": message, **reply},
    )


@asynccontextmanager
async def specialist(
    server: Mapping[str, Any], replies: Sequence[Fixture] = (), **settings: Any
) -> AsyncIterator[Specialist]:
    """The agent for one remote agent."""
    telemetry = Telemetry.for_tests("a2a")
    loaded = A2aSettings.load(
        server=ServerSettings(port=0, grace_s=1.0),
        servers={NAME: {"networks": NETWORKS, **server}},
        **{"refresh_s": 3600, "max_backoff_s": 0.5, **settings},
    )
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel(list(replies)))
        models = await stack.enter_async_context(
            Models(model_settings(model, max_attempts=1), telemetry)
        )
        running = await stack.enter_async_context(serve(loaded, telemetry, models=models))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(running.address))
        yield Specialist(AgentServiceStub(channel), telemetry, model)
