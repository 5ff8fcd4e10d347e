"""Agent contract of the MCP agent, with a real MCP server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_llm import Models
from bos_mcp.service import serve
from bos_mcp.settings import McpSettings
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

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
    telemetry, mark = Telemetry.for_tests("mcp"), folder / "mark.txt"
    async with (
        over_http(build(folder)) as url,
        ScriptedModel(REPLIES) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        servers = {NAME: {"url": url, "networks": NETWORKS}}
        yield Subject(
            name=NAME,
            example=AgentInput(task=TASK),
            model=model,
            serve=serving(serve, McpSettings, telemetry, models, servers=servers),
            telemetry=telemetry,
            process=Process("bos_mcp", {"BOS_MCP_SERVERS": json.dumps(servers)}),
            proposing=PROPOSING,
            # Each performed call adds one character.
            performed=lambda: mark.stat().st_size if mark.exists() else 0,
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
