"""Builds the files agent with its workspaces and serves both: in its own process and standalone.

One server offers the agent to steps and the workspaces to people. Neither credential opens the
other service: each of them has an authenticator of its own.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bos.account.v1 import add_AccountDataServiceServicer_to_server
from bos.files.v1 import (
    add_FileServiceServicer_to_server,
    add_FileTableServiceServicer_to_server,
)
from bos_agentkit import agent_servicer
from bos_artefacts import open_artefacts
from bos_chassis.auth.account_data import SERVICE_NAME as ACCOUNT_SERVICE_NAME
from bos_chassis.auth.proxy_tokens import from_proxy
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.auth.user_tokens import open_authenticator
from bos_chassis.concurrency.tasks import running_task
from bos_chassis.metrics import DiskMetrics
from bos_chassis.server import Servicer, grpc_server
from bos_files.account_data import AccountDataServicer
from bos_files.agent import FilesAgent
from bos_files.api import SERVICE_NAME, FileServicer
from bos_files.card import NAME
from bos_files.metrics import FilesMetrics
from bos_files.pdf.fonts import font_folders
from bos_files.pdf.rendering import PdfMaker
from bos_files.queries.api import AUDIENCE as TABLES_AUDIENCE
from bos_files.queries.api import SERVICE_NAME as TABLES_SERVICE_NAME
from bos_files.queries.api import FileTableServicer
from bos_files.queries.engine import QueryEngine
from bos_files.queries.limits import QueryLimits
from bos_files.workspaces.store import Quota, Store
from bos_files.workspaces.uploads import Uploads
from bos_files.workspaces.workspace import Workspaces
from bos_http import HttpClient, issuer_document
from bos_postgres.audit import ServiceStore, audit_servicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos_chassis.auth.callers import Authenticator
    from bos_chassis.server import GrpcServer
    from bos_chassis.telemetry import Telemetry
    from bos_files.settings import FilesSettings
    from bos_llm import Models

SCHEMA: Final = "files"
READER: Final = "bos_files_reader"
STORE: Final = ServiceStore(
    SCHEMA,
    Path(__file__).parent / "migrations",
    READER,
    max_connections=8,
    max_readers=4,
    stateless_readers=True,
)
migrate_store: Final = STORE.migrate
_MAX_ROWS: Final = 10_000
_MAX_COLUMNS: Final = 500
_MAX_BYTES: Final = 2 * 1024 * 1024
"""Size limit of the result of a query over files, for any caller: one gRPC message."""
_HANDS_ON: Final = frozenset({"mcp_db"})
"""Services that pass on run tokens of other agents for queries over files."""


@asynccontextmanager
async def serve(
    settings: FilesSettings,
    telemetry: Telemetry,
    *,
    models: Models | None,
    http: HttpClient | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve agent and workspaces until the context is left.

    Args:
        settings: How.
        telemetry: Of this service.
        models: Shared by the process; None: plans have to name tools and arguments.
        http: Downloads, closed by its opener; None: as the settings say.

    Raises:
        ConfigurationError: a setting is not usable.
        Unavailable: the store cannot be reached.
    """
    metrics = FilesMetrics.of(telemetry.registry)
    model = None if models is None else models.for_agent(NAME)
    pdfs = PdfMaker(
        font_folders(settings.fonts_folder),
        timeout_s=settings.pdf_timeout_s,
        memory_mib=settings.pdf_memory_mib,
        at_once=settings.max_pdfs,
    )
    async with AsyncExitStack() as stack:
        people, steps, tables = await _callers(stack, settings, telemetry)
        pool, readers = await stack.enter_async_context(
            STORE.open(settings.store_url, telemetry, audit=settings.audit, settings=settings)
        )
        if http is None:
            http = await stack.enter_async_context(HttpClient(settings.http, telemetry))
        quota = Quota(
            files=settings.max_files_per_user,
            size_bytes=settings.max_bytes_per_user,
            versions=settings.max_versions,
        )
        disks = DiskMetrics.of(telemetry.registry)
        disks.watch(telemetry.service, "workspaces", settings.workspace_url)
        blobs = open_artefacts(settings.workspace_url, max_blob_bytes=settings.max_file_bytes)
        workspaces = Workspaces(
            Store(pool, readers, quota), blobs, settings.max_file_bytes, telemetry
        )
        agent = FilesAgent(settings, workspaces, pdfs, http, metrics, model)
        await stack.enter_async_context(
            running_task(workspaces.collecting(settings.collect_s), "files-collecting")
        )
        servicers = [
            agent_servicer(settings, telemetry, agent, auth=steps),
            Servicer(
                FileServicer(workspaces, Uploads(workspaces, settings, metrics)),
                add_FileServiceServicer_to_server,
                SERVICE_NAME,
            ),
            Servicer(
                _file_tables(settings, workspaces, metrics),
                add_FileTableServiceServicer_to_server,
                TABLES_SERVICE_NAME,
                auth=tables,
                shown_by=_HANDS_ON,
            ),
            Servicer(
                AccountDataServicer(workspaces),
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
                auth=people,
                from_proxy=from_proxy(settings.auth, telemetry),
            )
        )


def _file_tables(
    settings: FilesSettings, workspaces: Workspaces, metrics: FilesMetrics
) -> FileTableServicer:
    limits = QueryLimits(
        max_rows=_MAX_ROWS,
        max_columns=_MAX_COLUMNS,
        max_bytes=_MAX_BYTES,
        timeout_s=settings.query_timeout_s,
        memory_mib=settings.query_memory_mib,
        max_files=settings.max_table_files,
        max_file_bytes=settings.max_file_bytes,
        max_query_bytes=3 * settings.max_file_bytes,
    )
    return FileTableServicer(
        workspaces,
        QueryEngine(limits, at_once=settings.max_queries),
        limits,
        at_once=settings.max_queries,
        queue_timeout_s=settings.query_queue_timeout_s,
        metrics=metrics,
    )


async def _callers(
    stack: AsyncExitStack, settings: FilesSettings, telemetry: Telemetry
) -> tuple[Authenticator | None, Authenticator | None, Authenticator | None]:
    """Who is let in to the workspaces, who to the agent, and who to the tables of files.

    Where only one of them is configured the others are closed: a token of a person must not start
    steps, nor one of a step read a workspace.
    """
    auth, tls = settings.auth, settings.server.tls
    keyless = auth.model_copy(update={"static_key": None, "static_keys_file": None})
    people = await stack.enter_async_context(
        open_authenticator(auth, None, telemetry, tls=tls, issuer_document=issuer_document)
    )
    steps = await stack.enter_async_context(
        open_run_tokens(
            keyless,
            NAME,
            telemetry,
            accepts="agent",
            check_target=settings.gateway_target,
            tls=tls,
        )
    )
    tables = await stack.enter_async_context(
        open_run_tokens(
            keyless, TABLES_AUDIENCE, telemetry, check_target=settings.gateway_target, tls=tls
        )
    )
    if people is None and steps is None:
        return None, None, None
    return people or _Closed(), steps or _Closed(), tables or _Closed()


class _Closed:
    """Authenticator that accepts no caller."""

    async def authenticate(self, metadata: Mapping[str, str]) -> Any:
        """No caller has a credential of this kind."""
        return None
