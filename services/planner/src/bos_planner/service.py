"""Start of the planner's gRPC server, for its own process and for the standalone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos.planner.v1 import add_PlannerServiceServicer_to_server
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_planner.api import PlannerServicer
from bos_planner.instructions import InstructionClassifier
from bos_planner.planner import Planner
from bos_planner.templates import load_templates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.auth.callers import Authenticator
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models
    from bos_planner.settings import PlannerSettings

SERVICE_NAME = "bos.planner.v1.PlannerService"


@asynccontextmanager
async def serve(
    settings: PlannerSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    auth: Authenticator | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve the planner until the context is left.

    Args:
        settings: Address and limits.
        telemetry: Log, traces and metrics of this service.
        models: Shared by the process; None plans without a model.
        auth: Authentication of callers; None only on loopback.

    Raises:
        ConfigurationError: the address cannot be used, or the template file is wrong.
    """
    planner = Planner(
        settings, telemetry, models=models, templates=load_templates(settings.templates_path)
    )
    api = PlannerServicer(planner, InstructionClassifier(telemetry, models=models))
    servicer = Servicer(
        api,
        add_PlannerServiceServicer_to_server,
        SERVICE_NAME,
        max_request_bytes=settings.server.max_message_bytes,
    )
    async with grpc_server(settings.server, [servicer], telemetry=telemetry, auth=auth) as server:
        yield server
