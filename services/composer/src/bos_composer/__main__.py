"""``python -m bos_composer``: the composer as a process of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_chassis.auth import authenticator_from
from bos_chassis.server import GrpcServer, run_service
from bos_chassis.settings import AuthSettings, TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_composer.service import serve
from bos_composer.settings import ComposerSettings
from bos_llm import Models, ModelSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def _process(settings: ComposerSettings) -> AsyncIterator[GrpcServer]:
    with setup_telemetry("composer", TelemetrySettings.load()) as telemetry:
        auth = authenticator_from(AuthSettings.load(), "composer", "service", telemetry)
        async with (
            Models(ModelSettings.load(), telemetry) as models,
            serve(settings, telemetry, models=models, auth=auth) as server,
        ):
            yield server


if __name__ == "__main__":
    run_service(_process, ComposerSettings)
