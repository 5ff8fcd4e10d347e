"""Building and wiring: what a process of its own and the all-in-one both call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from bos_chassis.auth.callers import Authenticator
from bos_chassis.channels import Channels
from bos_chassis.metrics import metrics_server
from bos_chassis.settings import require_loopback
from bos_chassis.telemetry import Telemetry
from bos_errors import ConfigurationError
from bos_mcp_db.api import Tools, build_server
from bos_mcp_db.backends.files.opening import UserFiles
from bos_mcp_db.databases import Databases, limits_of, open_databases
from bos_mcp_db.failures import DatabaseUnavailable, RoleUnavailable
from bos_mcp_db.metrics import QueryMetrics
from bos_mcp_db.samples import HiddenColumns
from bos_mcp_db.settings import McpDbSettings
from bos_mcp_db.web import MCP_PATH, build_app
from bos_webserver import WebServer, http_server

AUDIENCE = "mcp_db"
"""What run tokens must name to be accepted here."""
# Describing tables takes several queries, and the answer has to travel.
_ANSWER_SLACK_S = 60.0


@dataclass(frozen=True, slots=True)
class McpDbServer(WebServer):
    """A running server."""

    @property
    def url(self) -> str:
        """URL that MCP clients connect to (streamable HTTP)."""
        return f"http://{self.address}{MCP_PATH}"


@asynccontextmanager
async def serve(
    settings: McpDbSettings, telemetry: Telemetry, *, auth: Authenticator | None = None
) -> AsyncIterator[McpDbServer]:
    """Serve the databases until the context is left.

    Args:
        settings: Databases, limits, address.
        telemetry: Of this service.
        auth: Who may call; None only on loopback.

    Raises:
        ConfigurationError: no usable database, a listed table that does not exist, or an address
            that cannot be used.
    """
    server = settings.server
    require_loopback(server.host, auth is not None)
    async with AsyncExitStack() as stack:
        databases = await stack.enter_async_context(open_databases(settings))
        await _check_tables(databases, telemetry)
        await _check_access(databases, telemetry)
        _tell_ignored_limits(databases, telemetry)
        hidden = HiddenColumns(settings.sample_hidden_columns)
        files = await _open_files(stack, settings, telemetry)
        tools = Tools(databases, telemetry, QueryMetrics(telemetry.registry), hidden, files)
        app = build_app(build_server(tools), host=server.host, auth=auth)
        metrics_port = None
        if server.metrics_port is not None:
            metrics_port = await stack.enter_async_context(
                metrics_server(telemetry.registry, server.metrics_host, server.metrics_port)
            )
        limits = settings.connection_limits(
            settings.timeout_s + settings.queue_timeout_s + _ANSWER_SLACK_S
        )
        port = await stack.enter_async_context(http_server(app, server, limits, telemetry))
        yield McpDbServer(AUDIENCE, server.host, port, metrics_port)


async def _open_files(
    stack: AsyncExitStack, settings: McpDbSettings, telemetry: Telemetry
) -> UserFiles | None:
    """The database of what users have uploaded; None where no files service is named."""
    if not settings.files_target:
        return None
    channels = await stack.enter_async_context(Channels(telemetry, tls=settings.server.tls))
    return UserFiles(settings, limits_of(settings), channels)


async def _check_tables(databases: Databases, telemetry: Telemetry) -> None:
    """Refuse an allow-list with a table that is not there; an absent database may come later."""
    log = telemetry.logger("service")
    for database in databases.all():
        try:
            found = {table.name for table in await database.describe()}
        except DatabaseUnavailable:
            log.warning("database unavailable at start", database=database.name)
            continue
        missing = [table for table in database.tables if table not in found]
        if missing:
            raise ConfigurationError(
                f"Database {database.name!r} has no table {', '.join(missing)} (or the role cannot"
                " see it). Spell tables as the database does, with schema if it is not the default"
                " one, in BOS_DATABASE_ALLOWED_TABLES or BOS_MCP_DB_DATABASES."
            )


async def _check_access(databases: Databases, telemetry: Telemetry) -> None:
    """Refuse a role that cannot be taken on; a database that is not here may be elsewhere."""
    log = telemetry.logger("service")
    for name in databases.unknown():
        log.warning("groups may read a database that is not configured here", database=name)
    for database in databases.by_role():
        try:
            await database.describe()
        except DatabaseUnavailable:
            continue
        except RoleUnavailable:
            raise ConfigurationError(
                f'Database {database.name!r}: the role "{database.role}" of BOS_ACCESS_GROUPS or '
                "BOS_ACCESS_EVERYBODY cannot be taken on. Create it, and GRANT it to the user of "
                "the database's URL."
            ) from None


def _tell_ignored_limits(databases: Databases, telemetry: Telemetry) -> None:
    """SQLite's planner explains how it would search, but not what that costs."""
    log = telemetry.logger("service")
    for database in databases.all():
        if database.limits.max_estimated_cost is not None and database.backend.dialect == "sqlite":
            log.warning(
                "estimated cost cannot be limited here, the time limit holds alone",
                database=database.name,
            )
