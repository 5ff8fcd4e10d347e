"""Composition of the MCP agent, for its own process and the standalone."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_agentkit import agent_service
from bos_mcp.agent import McpAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models
    from bos_mcp.settings import McpSettings

NAME = "mcp"
"""Of the service, and of the model that all specialists of this kind use."""
_SDK_LOGGERS = ("client", "mcp.client", "mcp.shared")


@asynccontextmanager
async def serve(
    settings: McpSettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve the specialist of one MCP server until the context exits.

    The server need not be there: until it is, the agent says that it is unavailable, and why.

    Args:
        settings: Servers, and which of them this is.
        telemetry: Of this service.
        models: Shared by the process; None: only calls given by plans.

    Raises:
        ConfigurationError: no server is configured or chosen, or the model settings are invalid.
    """
    for logger in _SDK_LOGGERS:
        # They write down what a server sent, with tracebacks, where it is not valid.
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    name, server = settings.chosen()
    model = None if models is None else models.for_agent(NAME)
    agent = McpAgent(name, server, settings, telemetry, model)
    async with agent.connection.kept(), agent_service(settings, telemetry, agent) as running:
        yield running
