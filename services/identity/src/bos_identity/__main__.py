"""``python -m bos_identity``: identity as a process of its own."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_chassis.server import run_service
from bos_chassis.telemetry import setup_telemetry
from bos_identity.service import serve
from bos_identity.settings import IdentitySettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer


@asynccontextmanager
async def _process(settings: IdentitySettings) -> AsyncIterator[GrpcServer]:
    with setup_telemetry("identity", settings.telemetry) as telemetry:
        async with serve(settings, telemetry) as server:
            yield server


if __name__ == "__main__":
    run_service(_process, IdentitySettings)
