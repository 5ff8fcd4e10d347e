"""The MCP agent, served, with real MCP servers below it and a scripted model."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer

from bos_mcp.service import serve
from bos_mcp.settings import McpSettings
from bos_testkit.asgi_server import asgi_server
from bos_testkit.fixtures.agent_harness import AgentHarness, StepOutcome, served_agent
from bos_testkit.scripted_model.replies import Fixture, fixture

from .notes_server import build

NAME = "notes"
NETWORKS = ["127.0.0.0/8"]
SERVER = Path(__file__).with_name("notes_server.py")


class Specialist(AgentHarness):
    async def offers(self, *names: str) -> None:
        """Wait until the card has exactly these tools."""
        async with asyncio.timeout(60):
            while await self._tools() != list(names):  # noqa: ASYNC110  it is asked anew
                await asyncio.sleep(0.02)

    async def _tools(self) -> list[str]:
        return [tool.name for tool in (await self.card()).tools]

    async def ask(
        self, task: str = "Do it", tool: str = "", arguments: Any = None, **fields: Any
    ) -> StepOutcome:
        tools = [tool] if tool else []
        outcome: StepOutcome = await self.do(
            task, arguments, **{"tool_name": tool, "tools": tools, **fields}
        )
        return outcome


def chosen(task: str, tool: str, after: str = "none", **arguments: Any) -> Fixture:
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
    changes = {"refresh_s": 3600, "max_backoff_s": 0.5, **settings}
    async with served_agent(
        *(NAME, serve, McpSettings, *replies),
        harness=Specialist,
        servers={NAME: dict(server)},
        **changes,
    ) as found:
        yield found


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
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "plan.txt").write_text("Pumps are due on Friday.", "utf-8")
    return notes


@pytest.fixture
def program(folder: Path) -> dict[str, Any]:
    return {"command": [sys.executable, str(SERVER), str(folder)], "env": {"PATH": "/usr/bin:/bin"}}


@pytest.fixture
async def endpoint(folder: Path) -> AsyncIterator[dict[str, Any]]:
    async with over_http(build(folder)) as url:
        yield {"url": url, "networks": NETWORKS}
