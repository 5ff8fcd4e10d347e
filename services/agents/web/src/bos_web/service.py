"""Builds the web agent and serves it: for its own process and for standalone."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bos_agentkit import agent_service
from bos_web.agent import WebAgent
from bos_web.card import NAME
from bos_web.pages.reader import open_reader
from bos_web.search.providers import open_provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_http import Resolver
    from bos_llm import Models
    from bos_web.settings import WebSettings


@asynccontextmanager
async def serve(
    settings: WebSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    resolver: Resolver | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve the web agent until the context is left.

    Args:
        settings: Address, search provider and limits.
        telemetry: Of this service.
        models: Shared by the process; None searches by rule and answers with quotations.
        resolver: Where addresses of pages come from; the operating system's if None.

    Raises:
        ConfigurationError: the address, the key file or the agent's model settings are wrong.
    """
    async with AsyncExitStack() as stack:
        model = models.for_agent(NAME) if models is not None else None
        provider = await stack.enter_async_context(open_provider(settings, telemetry))
        reader = await stack.enter_async_context(
            open_reader(settings, telemetry, resolver=resolver)
        )
        agent = WebAgent(settings, provider, reader, model)
        yield await stack.enter_async_context(agent_service(settings, telemetry, agent))
