"""Composition of the A2A agent, for its own process and the standalone."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_a2a.agent import A2aAgent
from bos_agentkit import agent_service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_a2a.settings import A2aSettings
    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models

NAME = "a2a"
"""Of the service, and of the model that all specialists of this kind use."""
_SDK_LOGGERS = ("a2a.client", "httpx")


@asynccontextmanager
async def serve(
    settings: A2aSettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve the specialist of one remote agent until the context exits.

    The remote agent need not be there: until it is, the agent says that it is unavailable, and why.

    Args:
        settings: Remote agents, and which of them this is.
        telemetry: Of this service.
        models: Shared by the process; None: only messages given by plans.

    Raises:
        ConfigurationError: no remote agent is configured or chosen, its token cannot be read, or
            the model settings are invalid.
    """
    for logger in _SDK_LOGGERS:
        # They write down what a server sent, and its address with what stands in it.
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    name, server = settings.chosen()
    model = None if models is None else models.for_agent(NAME)
    agent = A2aAgent(name, server, settings, telemetry, model)
    async with agent.connection.kept(), agent_service(settings, telemetry, agent) as running:
        yield running
