"""The MCP agent, served, with real MCP servers below it and a scripted model."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from mcp.server.mcpserver import MCPServer

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
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, to_value_map
from bos_llm import Models
from bos_mcp.service import serve
from bos_mcp.settings import McpSettings
from bos_testkit.asgi_server import asgi_server
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .notes_server import build

NAME = "notes"
NETWORKS = ["127.0.0.0/8"]
SERVER = Path(__file__).with_name("notes_server.py")


@dataclass
class Outcome:
    """Outcome of one step."""

    result: AgentResult
    files: list[FileChunk] = field(default_factory=list)

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

    async def offers(self, *names: str) -> None:
        """Wait until the card has exactly these tools."""
        async with asyncio.timeout(60):
            while await self._tools() != list(names):  # noqa: ASYNC110  as above
                await asyncio.sleep(0.02)

    async def _tools(self) -> list[str]:
        return [tool.name for tool in (await self.card()).tools]

    async def step(
        self,
        task: str = "Do it",
        tool: str = "",
        arguments: Mapping[str, Any] | None = None,
        *,
        tools: Sequence[str] = (),
        approved: Sequence[ProposedAction] = (),
        **fields: Any,
    ) -> Outcome:
        request = AgentInput(
            agent_name=NAME,
            task=task,
            tool_name=tool,
            tools=[tool] if tool and not tools else tools,
            sub_task_input=to_value_map(arguments or {}).fields,
            metadata=TaskMetadata(user_id="asha", run_id="r", step_key="r/0/s", attempt=1),
            approval_context=ApprovalContext(approved_actions=approved),
            **fields,
        )
        outcome = Outcome(AgentResult())
        async for response in self.stub.Execute(ExecuteRequest(input=request), timeout=120):
            match response.WhichOneof("payload"):
                case "file":
                    outcome.files.append(response.file)
                case "result":
                    outcome.result.CopyFrom(response.result)
        return outcome


def chosen(task: str, tool: str, after: str = "none", **arguments: Any) -> Fixture:
    """The model chooses a call for ``task``."""
    return fixture(
        f"{task} {tool} {sorted(arguments.items())}",
        [task, f"## Calls so far {after}" if after == "none" else after],
        schema="NextCall",
        json={"reason": f"{tool} does it", "tool": tool, "arguments": json.dumps(arguments)},
    )


def answered(task: str, after: str, answer: str) -> Fixture:
    """The model answers ``task`` once the prompt holds ``after``."""
    return fixture(
        f"{task} answered",
        [task, after, "## Calls so far"],
        schema="NextCall",
        json={"answer": answer},
    )


@asynccontextmanager
async def specialist(
    server: Mapping[str, Any], replies: Sequence[Fixture] = (), **settings: Any
) -> AsyncIterator[Specialist]:
    """The agent for one server."""
    telemetry = Telemetry.for_tests("mcp")
    loaded = McpSettings.load(
        server=ServerSettings(port=0, grace_s=1.0),
        servers={NAME: dict(server)},
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


@asynccontextmanager
async def over_http(server: MCPServer, *, port: int = 0) -> AsyncIterator[str]:
    """Serve an MCP server over streamable HTTP; yields its endpoint."""
    application = server.streamable_http_app()
    started, stop = asyncio.Event(), asyncio.Event()

    async def manage() -> None:
        # In one task, which the fixtures of pytest are not.
        async with server.session_manager.run():
            started.set()
            await stop.wait()

    managing = asyncio.create_task(manage())
    await started.wait()
    try:
        async with asgi_server(application, port=port) as url:
            yield f"{url}/mcp"
    finally:
        stop.set()
        await managing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of notes, with one."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "plan.txt").write_text("Pumps are due on Friday.", "utf-8")
    return notes


@pytest.fixture
def program(folder: Path) -> dict[str, Any]:
    """Settings of the server as a program."""
    return {"command": [sys.executable, str(SERVER), str(folder)], "env": {"PATH": "/usr/bin:/bin"}}


@pytest.fixture
async def endpoint(folder: Path) -> AsyncIterator[dict[str, Any]]:
    """Settings of the server over HTTP."""
    async with over_http(build(folder)) as url:
        yield {"url": url, "networks": NETWORKS}
