from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bos_agentkit import agent_service
from bos_charts.agent import ChartsAgent
from bos_charts.card import NAME
from bos_charts.render.pool import Renderer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_charts.settings import ChartsSettings
    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models


@asynccontextmanager
async def serve(
    settings: ChartsSettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve the charts agent until the context exits.

    Args:
        settings: Address, locale and limits.
        telemetry: Of this service.
        models: Shared by the process; None: the rules alone choose charts.

    Raises:
        ConfigurationError: the address or the agent's model settings are invalid.
    """
    async with AsyncExitStack() as stack:
        renderer = await stack.enter_async_context(
            Renderer(
                workers=settings.render_workers,
                memory_bytes=settings.render_memory_bytes,
                timeout_s=settings.render_timeout_s,
            )
        )
        model = models.for_agent(NAME) if models is not None else None
        agent = ChartsAgent(settings, renderer, model)
        yield await stack.enter_async_context(agent_service(settings, telemetry, agent))
