"""Agent contract of the MCP agent, with a real MCP server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bos.agent.v1 import AgentInput
from bos_chassis.values import to_value
from bos_mcp.service import serve
from bos_mcp.settings import McpSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules

from .conftest import NAME, NETWORKS, answered, chosen, over_http
from .notes_server import build

TASK = "What does the note plan say?"
REPLIES = [
    chosen(TASK, "read_note", name="plan"),
    answered(TASK, "Pumps are due on Friday", "Pumps are due on Friday."),
]
PROPOSING = AgentInput(
    task="Write the note mark",
    tools=["write_note"],
    tool_name="write_note",
    sub_task_input={"name": to_value("mark"), "text": to_value("x")},
)


@pytest.fixture
async def subject(folder: Path) -> AsyncIterator[Subject]:
    mark = folder / "mark.txt"
    async with over_http(build(folder)) as url:
        servers = {NAME: {"url": url, "networks": NETWORKS}}
        async with agent_subject(
            *(NAME, serve, McpSettings, REPLIES, AgentInput(task=TASK)),
            package="mcp",
            servers=servers,
            environment={"BOS_MCP_SERVERS": json.dumps(servers)},
            proposing=PROPOSING,
            # Each performed call adds one character.
            performed=lambda: mark.stat().st_size if mark.exists() else 0,
        ) as subject:
            yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
