"""``python -m bos_memory``: memory as a process of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_chassis.server import run_service
from bos_chassis.telemetry import setup_telemetry
from bos_llm import Models, ModelSettings
from bos_memory.service import serve
from bos_memory.settings import MemorySettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer


@asynccontextmanager
async def _process(settings: MemorySettings) -> AsyncIterator[GrpcServer]:
    with setup_telemetry("memory", settings.telemetry) as telemetry:
        async with (
            Models(ModelSettings.load(), telemetry) as models,
            serve(settings, telemetry, models=models) as server,
        ):
            yield server


if __name__ == "__main__":
    run_service(_process, MemorySettings)
