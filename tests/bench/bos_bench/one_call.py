"""The diamond's three agents, each of which asks its model once.

``python -m bos_bench.one_call sales`` serves one as a process of its own.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_agentkit import agent_service, serve_agent
from bos_bench.settings import OneCallSettings
from bos_testkit.agents import OneCallAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_agentkit.serving.service import Serve
    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models

NAMES = ("sales", "costs", "margin")


def _serving(name: str) -> Serve[OneCallSettings]:
    @asynccontextmanager
    async def serve(
        settings: OneCallSettings, telemetry: Telemetry, *, models: Models
    ) -> AsyncIterator[GrpcServer]:
        agent = OneCallAgent(models.for_agent(name), name)
        async with agent_service(settings, telemetry, agent) as server:
            yield server

    return serve


sales, costs, margin = map(_serving, NAMES)
AGENTS = {name: f"bos_bench.one_call:{name}" for name in NAMES}
"""What standalone takes in place of the installed agents."""


if __name__ == "__main__":
    serve_agent(sys.argv[1], OneCallSettings, _serving(sys.argv[1]))
