from __future__ import annotations

from typing import TYPE_CHECKING

from bos_agentkit import agent_service
from bos_text.agent import TextAgent
from bos_text.card import NAME

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models
    from bos_text.settings import TextSettings


def serve(
    settings: TextSettings, telemetry: Telemetry, *, models: Models | None
) -> AbstractAsyncContextManager[GrpcServer]:
    """Serve the text agent until the context exits.

    Args:
        settings: Address and limits.
        telemetry: Of this service.
        models: Shared by the process; None: every step fails with what to configure.

    Raises:
        ConfigurationError: the address or the agent's model settings are invalid.
    """
    model = models.for_agent(NAME) if models is not None else None
    return agent_service(settings, telemetry, TextAgent(settings, model))
