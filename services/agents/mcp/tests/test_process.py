"""The agent as a process of its own, with a program below it."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from bos.agent.v1 import AgentServiceStub, DescribeRequest
from bos_testkit.processes import is_dead, service_process
from bos_testkit.waiting import eventually

from .conftest import SERVER

pytestmark = pytest.mark.process


def _settings(folder: Path) -> dict[str, str]:
    """Two servers; the one with the program, which notes its process id, is chosen."""
    start = f"import os; open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))"
    code = f"{start}; import runpy, sys; sys.argv[1:] = [{str(folder)!r}]; "
    code += f"runpy.run_path({str(SERVER)!r}, run_name='__main__')"
    servers: dict[str, Any] = {
        "notes": {"command": [sys.executable, "-c", code]},
        "crm": {"url": "https://mcp.example.com/mcp"},
    }
    return {
        "BOS_MCP_SERVERS": json.dumps(servers),
        "BOS_MCP_AGENT": "notes",
        "BOS_SERVER_PORT": "0",
    }


async def _tools(address: str) -> list[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        card = (await AgentServiceStub(channel).Describe(DescribeRequest(), timeout=60)).card
    assert card.name == "notes"
    return [tool.name for tool in card.tools]


async def test_program_does_not_outlive_an_agent_that_is_killed(folder: Path) -> None:
    async with service_process("bos_mcp", _settings(folder)) as agent:
        assert "read_note" in await _tools(agent.address)
        program = int((folder / "pid").read_text())
        os.kill(agent.pid, signal.SIGKILL)
        await eventually(lambda: is_dead(program))
