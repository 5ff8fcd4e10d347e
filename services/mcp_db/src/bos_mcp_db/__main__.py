"""``python -m bos_mcp_db``: the MCP server as a process of its own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_chassis.run_token_checks import open_run_tokens
from bos_chassis.server import run_service
from bos_chassis.settings import AuthSettings, TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_mcp_db.service import AUDIENCE, McpDbServer, serve
from bos_mcp_db.settings import McpDbSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def _process(settings: McpDbSettings) -> AsyncIterator[McpDbServer]:
    with setup_telemetry(AUDIENCE, TelemetrySettings.load()) as telemetry:
        async with (
            open_run_tokens(
                AuthSettings.load(), AUDIENCE, telemetry, tls=settings.server.tls
            ) as auth,
            serve(settings, telemetry, auth=auth) as server,
        ):
            yield server


if __name__ == "__main__":
    # Of asyncio itself: uvloop loses what a peer says between the connection and its handshake
    # (see handshakes.py), now and then.
    run_service(_process, McpDbSettings, loop_factory=asyncio.new_event_loop)
