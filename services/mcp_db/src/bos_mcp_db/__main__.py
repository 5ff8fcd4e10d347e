"""``python -m bos_mcp_db``: the MCP server as a process of its own."""

from __future__ import annotations

import asyncio

from bos_chassis.process import main, step_auth
from bos_mcp_db.service import AUDIENCE, serve
from bos_mcp_db.settings import McpDbSettings

if __name__ == "__main__":
    # Of asyncio itself: uvloop loses what a peer says between the connection and its handshake
    # (see handshakes.py), now and then.
    main(AUDIENCE, McpDbSettings, serve, loop_factory=asyncio.new_event_loop, auth=step_auth)
