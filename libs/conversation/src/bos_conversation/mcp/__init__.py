"""Bos as an MCP server: tools and resources over the client, for every way in.

Needs the extra ``bos-client[mcp]``.
"""

from bos_conversation.mcp.callers import Callers, Policy
from bos_conversation.mcp.server import build_server

__all__ = ["Callers", "Policy", "build_server"]
