"""One malformed tool of a listing costs no other."""

from typing import Any

import pytest

from bos_mcp.server.tolerant import valid_tool

from .conftest import NETWORKS, specialist
from .hostile_server import HostileServer, hostile, tool

NO_ARGUMENTS = {"type": "object"}
OTHER_ALPHABETS = ["tool", "v2", "gr_e"]


@pytest.mark.parametrize(
    ("tool", "schema"),
    [
        ({"name": "no_schema", "inputSchema": {}}, NO_ARGUMENTS),
        ({"name": "missing"}, NO_ARGUMENTS),
        ({"name": "null", "inputSchema": None}, NO_ARGUMENTS),
        ({"name": "anything", "inputSchema": True}, NO_ARGUMENTS),
        ({"name": "optional", "inputSchema": {"type": ["object", "null"]}}, NO_ARGUMENTS),
        ({"name": "查询客户", "inputSchema": {"properties": {"客户名": {}}}},
         {"type": "object", "properties": {"客户名": {}}}),
        ({"name": "text", "inputSchema": {"type": "string"}}, None),
        ({"name": "listed", "inputSchema": [1]}, None),
        ({"name": 7, "inputSchema": NO_ARGUMENTS}, None),
        ({"inputSchema": NO_ARGUMENTS}, None),
        ("search", None),
        (None, None),
    ],
)  # fmt: skip
def test_malformed_tools_are_mended_or_left_out(tool: Any, schema: dict[str, Any] | None) -> None:
    valid = valid_tool(tool)
    assert (valid and valid["inputSchema"]) == schema


def test_malformed_extras_are_left_out() -> None:
    tool = {"name": "search", "description": "Finds.", "inputSchema": {}}
    extras = {"annotations": "read-only", "outputSchema": 3}
    assert valid_tool(tool | extras) == tool | {"inputSchema": NO_ARGUMENTS}
    kept = {"annotations": {"readOnlyHint": True}, "title": "Suche"}
    assert valid_tool(tool | kept) == tool | kept | {"inputSchema": NO_ARGUMENTS}


async def test_malformed_tools_cost_no_other() -> None:
    listed = [{"name": "no_schema", "inputSchema": {}}, {"name": "no_object", "inputSchema": 3}, 7]
    server = HostileServer([*listed, tool("look"), tool("查询客户"), tool("更新v2"), tool("größe")])
    async with (
        hostile(server) as url,
        specialist({"url": url, "networks": NETWORKS}, ()) as found,
    ):
        card = await found.card()
    names = [each.name for each in card.tools]
    assert names[:2] == ["no_schema", "look"]
    assert [name.rpartition("_")[0] for name in names[2:]] == OTHER_ALPHABETS
