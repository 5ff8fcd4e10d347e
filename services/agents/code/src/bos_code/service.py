from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from bos.sandbox.v1 import Tier
from bos_agentkit import agent_service
from bos_agentkit.programs.sandbox import Sandbox
from bos_chassis.channels import Channels
from bos_code.agent import CodeAgent
from bos_code.card import NAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_code.settings import CodeSettings
    from bos_llm import Models


@asynccontextmanager
async def serve(
    settings: CodeSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    channels: Channels | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve the code agent until the context exits.

    Args:
        settings: Address, sandbox and limits.
        telemetry: Of this service.
        models: Shared by the process; None fails every step without a program given by the plan.
        channels: Shared by the process; None: opened here.

    Raises:
        ConfigurationError: the address or the agent's model settings are invalid.
    """
    async with AsyncExitStack() as stack:
        if channels is None:
            channels = await stack.enter_async_context(Channels(telemetry, tls=settings.server.tls))
        sandbox = Sandbox(
            channels,
            settings.sandbox_target,
            program_timeout_s=settings.program_timeout_s,
            tier=Tier.TIER_PROCESS,
            return_files=True,
        )
        model = models.for_agent(NAME) if models is not None else None
        agent = CodeAgent(settings, sandbox, model)
        yield await stack.enter_async_context(agent_service(settings, telemetry, agent))
