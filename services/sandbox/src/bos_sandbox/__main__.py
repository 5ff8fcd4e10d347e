"""``python -m bos_sandbox``: the sandbox as a process of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_chassis.run_token_checks import open_run_tokens
from bos_chassis.server import GrpcServer, run_service
from bos_chassis.settings import AuthSettings, TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_sandbox.service import AUDIENCE, serve
from bos_sandbox.settings import SandboxSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def _process(settings: SandboxSettings) -> AsyncIterator[GrpcServer]:
    with setup_telemetry("sandbox", TelemetrySettings.load()) as telemetry:
        async with (
            open_run_tokens(
                AuthSettings.load(), AUDIENCE, telemetry, tls=settings.server.tls
            ) as auth,
            serve(settings, telemetry, auth=auth) as server,
        ):
            yield server


if __name__ == "__main__":
    run_service(_process, SandboxSettings)
