"""Servers of others with tools that read and that write, as specialists without code."""

from pathlib import Path

import pytest

from bos.agent.v1 import AgentExecutionStatus, SideEffectClass

from .community_servers import community_server
from .conftest import answered, chosen, specialist

pytestmark = pytest.mark.process

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
AWAITING = AgentExecutionStatus.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL
READ, WRITE = "What does plan.txt say?", "Write todo.txt"
ENTITY = {"name": "Ravi", "entityType": "person", "observations": ["repairs pumps"]}


async def test_files_are_read_at_once_and_written_after_approval(folder: Path) -> None:
    plan, todo = str(folder / "plan.txt"), str(folder / "todo.txt")
    replies = [
        chosen(READ, "read_text_file", path=plan),
        answered(READ, "Pumps are due on Friday", "Pumps are due on Friday."),
        chosen(WRITE, "write_file", path=todo, content="Call Ravi."),
    ]
    server = {"command": community_server("filesystem", str(folder))}
    async with specialist(server, replies) as files:
        card = await files.card()
        read = await files.step(READ)
        proposed = await files.step(WRITE, tools=["write_file"])
        assert proposed.result.status == AWAITING, proposed.result.error
        assert not (folder / "todo.txt").exists()
        done = await files.step(WRITE, tools=["write_file"], approved=[proposed.action])
    effects = {tool.name: tool.side_effect for tool in card.tools}
    assert effects["read_text_file"] == SideEffectClass.SIDE_EFFECT_CLASS_NONE
    assert effects["write_file"] == SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
    assert effects["move_file"] == SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE
    assert all(t.requires_approval for t in card.tools if effects[t.name] != 1)
    assert read.result.status == SUCCEEDED, read.result.error
    assert read.result.answer == "Pumps are due on Friday."
    assert read.result.tainted
    assert done.result.status == SUCCEEDED, done.result.error
    assert (folder / "todo.txt").read_text("utf-8") == "Call Ravi."


async def test_a_graph_is_read_at_once_and_extended_after_approval(tmp_path: Path) -> None:
    server = {
        "command": community_server("memory"),
        "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")},
    }
    async with specialist(server) as graph:
        proposed = await graph.step(tool="create_entities", arguments={"entities": [ENTITY]})
        assert proposed.result.status == AWAITING, proposed.result.error
        before = await graph.step(tool="read_graph")
        done = await graph.step(
            tool="create_entities", arguments={"entities": [ENTITY]}, approved=[proposed.action]
        )
        after = await graph.step(tool="read_graph")
    assert before.data["structured"]["entities"] == []
    assert done.result.status == SUCCEEDED, done.result.error
    assert after.data["structured"]["entities"] == [ENTITY]
