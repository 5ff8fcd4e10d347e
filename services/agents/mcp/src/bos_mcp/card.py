"""Card of a specialist whose tools are those of an MCP server."""

from __future__ import annotations

from collections.abc import Sequence

from bos.agent.v1 import AgentCard
from bos_agentkit import agent_card
from bos_mcp.settings import McpServer
from bos_mcp.tools import ServerTool

_MAX_NAMED = 30
_RESERVE_S = 60.0
_SELECTION_GROUP = 1


def mcp_card(name: str, server: McpServer, tools: Sequence[ServerTool]) -> AgentCard:
    """Card of the server ``name``: the operator's words, and the names of its tools.

    What the server says of itself and of its tools stands with each tool alone, as its words.
    """
    named = ", ".join(tool.name for tool in tools[:_MAX_NAMED])
    about = server.description or f"Works with the server {name} through its tools."
    writes = [tool.name for tool in tools if not tool.definition.reads]
    return agent_card(
        name,
        f"{about} Tools: {named}." if named else about,
        capabilities=[
            *(f"reads by {tool.name}" for tool in tools if tool.definition.reads),
            *(f"changes something after approval (tool {each})" for each in writes),
        ][: 2 * _MAX_NAMED],
        typical_use_cases=[f"Use {name.replace('_', ' ')} for this"],
        keywords=server.keywords or (name.replace("_", " "),),
        selection_group=_SELECTION_GROUP,
        tools=tools,
        output_fields={
            "text": "text of the result",
            "structured": "JSON of the result, if it has any",
            "rows": "rows of a list as maps from field to value",
            "tool": "tool that was called last",
            "calls": "calls with their arguments",
            "files": "names of files that came with the result",
            "truncated": "whether there was more",
        },
        default_timeout_s=server.call_timeout_s + _RESERVE_S,
        max_retries=1,
        latency_budget_s=10,
        version="0.1.0",
    )
