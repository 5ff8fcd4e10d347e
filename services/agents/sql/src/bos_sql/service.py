"""Composition of the SQL agent, for its own process and the standalone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bos_agentkit import agent_service
from bos_chassis.credentials.tls import certificate_files
from bos_sql.agent import SqlAgent
from bos_sql.database.mcp import McpClient
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.grounding.curated import read_curated
from bos_sql.metrics import SqlMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models
    from bos_sql.settings import SqlSettings

NAME = "sql"


@asynccontextmanager
async def serve(
    settings: SqlSettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve the SQL agent until the context exits.

    Args:
        settings: Address of mcp_db, and limits.
        telemetry: Of this service.
        models: Shared by the process; None: answers from metadata only.

    Raises:
        ConfigurationError: the model settings, the curated file or the address are invalid.
    """
    model = None if models is None else models.for_agent(NAME)
    path = settings.metadata_path
    curated = None if path is None else await asyncio.to_thread(read_curated, path)
    indexes = MetadataIndexes(curated, ttl_s=settings.metadata_ttl_s)
    certificates = certificate_files(settings.server.tls, telemetry)
    async with McpClient(
        settings.mcp_url, max_reply_bytes=settings.max_reply_bytes, certificates=certificates
    ) as database:
        metrics = SqlMetrics.of(telemetry.registry)
        agent = SqlAgent(settings, database, model, telemetry, indexes, metrics)
        async with agent_service(settings, telemetry, agent) as server:
            yield server
