"""Builds the document agent and serves it: for its own process and for standalone."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bos_agentkit import agent_service
from bos_chassis.channels import Channels
from bos_rag.agent import RagAgent
from bos_rag.card import NAME
from bos_rag.documents import Documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models
    from bos_rag.settings import RagSettings


@asynccontextmanager
async def serve(
    settings: RagSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    channels: Channels | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve the document agent until the context is left.

    Args:
        settings: Address, documents service and limits.
        telemetry: Of this service.
        models: Shared by the process; None reranks by rule and answers with quotations.
        channels: Shared by the process; None opens its own.

    Raises:
        ConfigurationError: the address cannot be used, or the agent's model settings are wrong.
    """
    async with AsyncExitStack() as stack:
        if channels is None:
            channels = await stack.enter_async_context(Channels(telemetry, tls=settings.server.tls))
        documents = Documents(
            channels, settings.documents_target, timeout_s=settings.search_timeout_s
        )
        model = models.for_agent(NAME) if models is not None else None
        agent = RagAgent(settings, documents, model)
        yield await stack.enter_async_context(agent_service(settings, telemetry, agent))
