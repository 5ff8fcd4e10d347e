"""The database of files: for each call the tables of its user, behind a guard of their own."""

from __future__ import annotations

import hashlib
from typing import Final

from bos.files.v1 import ListFileTablesResponse
from bos_chassis.auth.callers import current_principal
from bos_chassis.channels import Channels
from bos_errors import ConfigurationError
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.files.backend import FilesBackend
from bos_mcp_db.backends.files.client import FileTables
from bos_mcp_db.concurrency_limiter import ConcurrencyLimiter
from bos_mcp_db.databases import Database
from bos_mcp_db.settings import McpDbSettings
from bos_sqlguard import Guard, GuardPolicy

FILES_DATABASE: Final = "files"
"""Its name; no configured database may have it where files are tables."""
_SAMPLE_VALUES: Final = 5


class UserFiles:
    """Opens the files of the user on whose behalf this service is called.

    They are the user's own, so groups have no say in them.

    Args:
        settings: Name the files service, and bound queries.
        limits: Of a query.
        channels: Of this service.

    Raises:
        ConfigurationError: a configured database has the name of this one.
    """

    def __init__(self, settings: McpDbSettings, limits: Limits, channels: Channels) -> None:
        if FILES_DATABASE in settings.named_databases():
            raise ConfigurationError(
                f"BOS_MCP_DB_DATABASES has a database {FILES_DATABASE!r}, which is the name of what"
                " users have uploaded while BOS_MCP_DB_FILES_TARGET is set. Rename the database."
            )
        self._files = FileTables(channels, settings.files_target)
        self._limits = limits
        self._limiter = ConcurrencyLimiter(settings.pool_size, settings.queue_timeout_s)

    async def database(self) -> Database:
        """The database of the caller's files.

        Raises:
            DatabaseUnavailable: the files service does not answer.
            FilesNotOpen: it does not accept the caller's run token.
            DatabaseBusy: too many lists and queries are under way.
        """
        async with self._limiter.taken():
            found = await self._files.list()
        names = tuple(table.name for table in found.tables)
        policy = GuardPolicy(
            "duckdb",
            frozenset(names),
            max_rows=self._limits.max_rows,
            max_columns=self._limits.max_columns,
        )
        return Database(
            name=FILES_DATABASE,
            description="Files that the user uploaded, each of them a table.",
            tables=names,
            sample_values=_SAMPLE_VALUES,
            limits=self._limits,
            guard=Guard(policy),
            backend=FilesBackend(self._files, found.tables, found.rejected),
            limiter=self._limiter,
            role=_reader(found),
        )


def _reader(found: ListFileTablesResponse) -> str:
    """Who reads what, as a digest: what is kept of a schema is that of this user and content."""
    principal = current_principal()
    parts = [principal.user_id if principal else "", *(each.digest for each in found.tables)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
