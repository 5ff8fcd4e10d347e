"""Start of the memory server, for its own process and for the standalone."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bos.account.v1 import add_AccountDataServiceServicer_to_server
from bos.memory.v1 import (
    add_MemoryServiceServicer_to_server,
    add_MemoryTurnServiceServicer_to_server,
)
from bos_chassis.auth.account_data import SERVICE_NAME as ACCOUNT_SERVICE_NAME
from bos_chassis.auth.proxy_tokens import from_proxy
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.server import Servicer, grpc_server
from bos_http import issuer_document
from bos_memory.account_data import AccountDataServicer
from bos_memory.api import SERVICE_NAME, TURN_SERVICE_NAME, MemoryServicer, MemoryTurnServicer
from bos_memory.conversations import Conversations
from bos_memory.extraction import Extractor
from bos_memory.metrics import MemoryMetrics
from bos_memory.profiles import Profiles
from bos_memory.summarizing import Summaries
from bos_postgres.audit import ServiceStore, audit_servicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models
    from bos_memory.settings import MemorySettings

SCHEMA = "memory"
READER = "bos_memory_reader"
AUDIENCE = "memory"
STORE = ServiceStore(
    SCHEMA,
    Path(__file__).parent / "migrations",
    READER,
    max_connections=8,
    max_readers=8,
)
migrate_store = STORE.migrate


@asynccontextmanager
async def serve(
    settings: MemorySettings, telemetry: Telemetry, *, models: Models | None
) -> AsyncIterator[GrpcServer]:
    """Serve memory until the context is left.

    Args:
        settings: Address, store and limits.
        telemetry: Log, traces and metrics of this service.
        models: Shared by the process; None extracts no facts and summarises by rule.

    Raises:
        ConfigurationError: a setting is invalid.
        Unavailable: the store cannot be reached.
    """
    metrics = MemoryMetrics(telemetry.registry)
    model = None if models is None else models.for_agent("memory")
    async with AsyncExitStack() as stack:
        auth = await stack.enter_async_context(
            open_authenticator(
                settings.auth,
                AUDIENCE,
                telemetry,
                tls=settings.server.tls,
                issuer_document=issuer_document,
            )
        )
        pool, readers = await stack.enter_async_context(
            STORE.open(settings.store_url, telemetry, audit=settings.audit, settings=settings)
        )
        conversations, profiles = Conversations(pool, readers), Profiles(pool, readers)
        extractor = Extractor(profiles, model, settings, metrics, telemetry)
        summaries = Summaries(conversations, model, settings, metrics, telemetry)
        await stack.enter_async_context(summaries.running())
        servicers = [
            Servicer(
                MemoryServicer(conversations, profiles),
                add_MemoryServiceServicer_to_server,
                SERVICE_NAME,
            ),
            Servicer(
                MemoryTurnServicer(conversations, extractor, summaries, metrics),
                add_MemoryTurnServiceServicer_to_server,
                TURN_SERVICE_NAME,
                max_request_bytes=settings.server.max_message_bytes,
            ),
            Servicer(
                AccountDataServicer(pool),
                add_AccountDataServiceServicer_to_server,
                ACCOUNT_SERVICE_NAME,
            ),
            audit_servicer(pool, SCHEMA),
        ]
        yield await stack.enter_async_context(
            grpc_server(
                settings.server,
                servicers,
                telemetry=telemetry,
                auth=auth,
                from_proxy=from_proxy(settings.auth, telemetry),
            )
        )
