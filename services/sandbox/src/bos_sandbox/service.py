from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bos.sandbox.v1 import add_SandboxServiceServicer_to_server
from bos_chassis.auth.callers import Authenticator
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.telemetry import Telemetry
from bos_sandbox.api import SandboxServicer
from bos_sandbox.interpreter import open_interpreter
from bos_sandbox.metrics import SandboxMetrics
from bos_sandbox.process_tier.process import open_process_tier
from bos_sandbox.settings import SandboxSettings

AUDIENCE = "sandbox"


@asynccontextmanager
async def serve(
    settings: SandboxSettings, telemetry: Telemetry, *, auth: Authenticator | None = None
) -> AsyncIterator[GrpcServer]:
    """Serve ``bos.sandbox.v1.SandboxService`` with warm pools of workers.

    The process tier gets ready in the background; calls that need it wait.

    Raises:
        ConfigurationError: The address cannot be bound, or the workers do not start.
    """
    metrics = SandboxMetrics(telemetry.registry)
    async with (
        open_interpreter(settings) as interpreter,
        open_process_tier(settings, telemetry, metrics) as process_tier,
    ):
        api = SandboxServicer(interpreter, process_tier, settings, metrics)
        servicer = Servicer(
            api,
            add_SandboxServiceServicer_to_server,
            "bos.sandbox.v1.SandboxService",
            max_request_bytes=settings.server.max_message_bytes,
        )
        async with grpc_server(
            settings.server, [servicer], telemetry=telemetry, auth=auth
        ) as server:
            yield server
