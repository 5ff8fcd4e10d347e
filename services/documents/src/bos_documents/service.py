"""Builds the documents service and serves it: the same for its own process and for standalone."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from bos.account.v1 import add_AccountDataServiceServicer_to_server
from bos.documents.v1 import (
    add_DocumentsServiceServicer_to_server,
    add_IngestionServiceServicer_to_server,
)
from bos_artefacts import open_artefacts
from bos_chassis.auth.account_data import SERVICE_NAME as ACCOUNT_SERVICE_NAME
from bos_chassis.auth.callers import AnyOf
from bos_chassis.auth.proxy_tokens import from_proxy
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.concurrency.tasks import running_task
from bos_chassis.metrics import DiskMetrics
from bos_chassis.server import Servicer, grpc_server
from bos_documents.account_data import AccountDataServicer
from bos_documents.api import SERVICE_NAME, DocumentsServicer
from bos_documents.engines import open_engines
from bos_documents.files import DocumentFiles, open_spool
from bos_documents.ingest.describing import Describer
from bos_documents.ingest.maintenance import Maintenance
from bos_documents.ingest.runner import Runner
from bos_documents.ingest.servicer import SERVICE_NAME as INGESTION_SERVICE_NAME
from bos_documents.ingest.servicer import IngestionServicer
from bos_documents.ingest.stages import Stages
from bos_documents.metrics import DocumentsMetrics
from bos_documents.search.searching import Searching
from bos_documents.store.documents import CHANNEL, Documents, UserLimits
from bos_documents.store.jobs import Jobs
from bos_documents.uploads import Uploads
from bos_documents.watching import Watches
from bos_http import issuer_document
from bos_postgres import Notices
from bos_postgres.audit import ServiceStore, audit_servicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bos_chassis.auth.callers import Authenticator
    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_documents.ports import Engines
    from bos_documents.settings import DocumentsSettings
    from bos_llm import Models

SCHEMA = "documents"
READER = "bos_documents_reader"
AUDIENCE = "documents"
STORE = ServiceStore(
    SCHEMA,
    Path(__file__).parent / "migrations",
    READER,
    max_connections=12,
    max_readers=8,
    stateless_readers=True,
)
migrate_store = STORE.migrate


@asynccontextmanager
async def serve(
    settings: DocumentsSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    engines: Engines | None = None,
    check_target: Callable[[], str] | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve documents until the context is left.

    Args:
        settings: How.
        telemetry: Of this service.
        models: Shared by the process; None describes documents by rule.
        engines: What reads, embeds, indexes and ranks, closed by its opener; None: as the
            settings say.
        check_target: Where the gateway says whether a step is under way, in place of the setting.

    Raises:
        ConfigurationError: a setting is not usable.
        Unavailable: the store cannot be reached.
    """
    metrics = DocumentsMetrics(telemetry.registry)
    model = None if models is None else models.for_agent("documents")
    async with AsyncExitStack() as stack:
        if engines is None:
            opening = open_engines(settings, telemetry, models, metrics)
            engines = await stack.enter_async_context(opening)
        auth = await stack.enter_async_context(_callers(settings, telemetry, check_target))
        pool, readers = await stack.enter_async_context(
            STORE.open(settings.store_url, telemetry, audit=settings.audit, settings=settings)
        )
        disks = DiskMetrics.of(telemetry.registry)
        disks.watch(telemetry.service, "files", settings.files_url)
        if settings.index_folder is not None:
            disks.watch(telemetry.service, "index", settings.index_folder)
        spool = stack.enter_context(open_spool(settings.spool_folder))
        files = DocumentFiles(
            open_artefacts(settings.files_url, max_blob_bytes=settings.max_document_bytes)
        )
        limits = UserLimits(
            documents=settings.max_documents_per_user, size_bytes=settings.max_bytes_per_user
        )
        documents = Documents(pool, readers, limits)
        jobs = Jobs(pool, uuid4(), settings.lease_s)
        describer = Describer(model, settings, metrics, telemetry)
        stages = Stages(jobs, files, spool, engines, describer, settings, metrics)
        runner = Runner(jobs, stages, settings, metrics, telemetry)
        maintenance = Maintenance(pool, documents, jobs, engines, settings, metrics, telemetry)
        searching = Searching(
            readers, engines, maintenance.remove_orphans, settings, metrics, telemetry
        )
        stack.push_async_callback(searching.close)
        watches = Watches(documents, settings)
        notices = await stack.enter_async_context(
            Notices(
                settings.store_url,
                CHANNEL,
                poll_s=settings.poll_s,
                application_name="bos-documents-notices",
            )
        )
        await stack.enter_async_context(runner.running())
        await stack.enter_async_context(
            running_task(_hear(notices, runner, watches), "documents-notices")
        )
        await stack.enter_async_context(running_task(maintenance.work(), "documents-maintenance"))
        uploads = Uploads(documents, files, spool, settings, metrics)
        servicers = [
            Servicer(
                DocumentsServicer(documents, uploads, watches, searching, runner),
                add_DocumentsServiceServicer_to_server,
                SERVICE_NAME,
            ),
            Servicer(
                AccountDataServicer(pool, documents, files, spool, engines.index, runner),
                add_AccountDataServiceServicer_to_server,
                ACCOUNT_SERVICE_NAME,
            ),
            Servicer(
                IngestionServicer(pool),
                add_IngestionServiceServicer_to_server,
                INGESTION_SERVICE_NAME,
            ),
            audit_servicer(pool, SCHEMA),
        ]
        server = await stack.enter_async_context(
            grpc_server(
                settings.server,
                servicers,
                telemetry=telemetry,
                auth=auth,
                from_proxy=from_proxy(settings.auth, telemetry),
            )
        )
        # Watches last for minutes: they end as soon as the service is to stop.
        stack.callback(watches.end)
        yield server


@asynccontextmanager
async def _callers(
    settings: DocumentsSettings, telemetry: Telemetry, check_target: Callable[[], str] | None
) -> AsyncIterator[Authenticator | None]:
    """People as everywhere, and steps of runs whose run token names this service."""
    tls = settings.server.tls
    keyless = settings.auth.model_copy(update={"static_key": None, "static_keys_file": None})
    async with (
        open_authenticator(
            settings.auth, None, telemetry, tls=tls, issuer_document=issuer_document
        ) as people,
        open_run_tokens(keyless, AUDIENCE, telemetry, check_target=check_target, tls=tls) as steps,
    ):
        found = [each for each in (people, steps) if each is not None]
        yield AnyOf(*found) if found else None


async def _hear(notices: Notices, runner: Runner, watches: Watches) -> None:
    """Pass notifications on, until cancelled; None stands for any that were missed."""
    async for notice in notices:
        what, _, document_id = (notice or "").partition(" ")
        if what == "changed":
            watches.changed(document_id)
        elif what == "stop":
            with suppress(ValueError):  # anyone on this database may notify
                await runner.check(UUID(document_id))
        else:
            runner.wake()
            if notice is None:
                watches.changed(None)
