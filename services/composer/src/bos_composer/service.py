"""Start of the composer's gRPC server, for its own process and for the standalone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos.composer.v1 import add_ComposerServiceServicer_to_server
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_composer.api import ComposerServicer
from bos_composer.composer import Composer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.auth.callers import Authenticator
    from bos_chassis.telemetry import Telemetry
    from bos_composer.settings import ComposerSettings
    from bos_llm import Models

SERVICE_NAME = "bos.composer.v1.ComposerService"


@asynccontextmanager
async def serve(
    settings: ComposerSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    auth: Authenticator | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve the composer until the context is left.

    Args:
        settings: Address, limits and number locale.
        telemetry: Log, traces and metrics of this service.
        models: Shared by the process; None composes without a model.
        auth: Authentication of callers; None only on loopback.

    Raises:
        ConfigurationError: the address cannot be used, or the composer's model settings are wrong.
    """
    composer = Composer(settings, telemetry, models=models)
    servicer = Servicer(
        ComposerServicer(composer),
        add_ComposerServiceServicer_to_server,
        SERVICE_NAME,
        max_request_bytes=settings.server.max_message_bytes,
    )
    async with grpc_server(settings.server, [servicer], telemetry=telemetry, auth=auth) as server:
        yield server
