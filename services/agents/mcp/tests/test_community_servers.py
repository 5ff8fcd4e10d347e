"""Servers of others with tools that read and that write, as specialists without code."""

from pathlib import Path

import pytest

from bos_testkit.fixtures.agent_harness import AWAITING, SUCCEEDED

from .community_servers import community_server
from .conftest import specialist

pytestmark = pytest.mark.process

ENTITY = {"name": "Ravi", "entityType": "person", "observations": ["repairs pumps"]}


async def test_a_graph_is_read_at_once_and_extended_after_approval(tmp_path: Path) -> None:
    server = {
        "command": community_server("memory"),
        "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")},
    }
    async with specialist(server) as graph:
        proposed = await graph.ask(tool="create_entities", arguments={"entities": [ENTITY]})
        assert proposed.result.status == AWAITING, proposed.result.error
        before = await graph.ask(tool="read_graph")
        done = await graph.ask(
            tool="create_entities", arguments={"entities": [ENTITY]}, approved=proposed.action
        )
        after = await graph.ask(tool="read_graph")
    assert before.data["structured"]["entities"] == []
    assert done.result.status == SUCCEEDED, done.result.error
    assert after.data["structured"]["entities"] == [ENTITY]
