"""Database metadata from mcp_db: the table overview, and the catalogue of the index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bos.common.v1 import Source, SourceType
from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType, Internal
from bos_sql.grounding.catalog import read_catalog
from bos_sqlguard import DIALECTS, Dialect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from bos.agent.v1 import AgentInput
    from bos_sql.grounding.cache import MetadataIndexes
    from bos_sql.grounding.catalog import Catalog
    from bos_sql.grounding.index import MetadataIndex
    from bos_sql.settings import SqlSettings

    ReadSchema = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
    """Function that calls mcp_db's tool ``mcp_db_schema``."""

# mcp_db's own limit.
_TABLES_PER_CALL = 100
# Transient failures of mcp_db.
_UNKNOWN_DATABASE = "UNKNOWN_DATABASE"
_TRANSIENT_REASONS = frozenset({"DATABASE_UNAVAILABLE", "DATABASE_BUSY"})


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table in the overview."""

    name: str
    kind: str
    comment: str
    row_estimate: int | None
    title: str = ""
    """What users call it, where that is not its name: the file of an uploaded table."""


@dataclass(frozen=True, slots=True)
class Overview:
    """Overview of the readable tables of one database."""

    database: str
    description: str
    dialect: Dialect
    default_schema: str
    max_rows: int
    max_columns: int
    tables: tuple[TableSummary, ...]
    fingerprint: str = ""
    """Fingerprint of the schema; empty: unknown."""
    narrowed: bool = False
    """Whether the user may read only some of the existing tables."""
    shown_columns: int = 0
    """Columns of a result that the request wants; 0 for all. A query may have more: they are cut,
    where more than ``max_columns`` are refused."""

    def known(self, names: Iterable[str]) -> tuple[str, ...]:
        """Existing tables among ``names``, in the overview's spelling, without duplicates."""
        spelled = {table.name.casefold(): table.name for table in self.tables}
        found = (spelled.get(name.strip().casefold()) for name in names)
        return tuple(dict.fromkeys(name for name in found if name))


async def list_tables(read: ReadSchema, settings: SqlSettings, backend: str = "") -> Overview:
    """Read the table overview (step ``list_tables``).

    Args:
        read: Calls mcp_db.
        settings: Name the database, and bound its tables.
        backend: Name of the database that the request asks for; empty for that of the settings.

    Raises:
        AgentFailure: QueryError or ConfigurationError, as classified by mcp_db; InvalidArgument
            when the caller may not read a database called ``backend``.
    """
    envelope = await read({"database": backend or settings.database})
    if backend:
        _require_known(envelope)
    require_success(envelope)
    overview = read_overview(envelope, settings)
    if not backend and settings.dialect not in (None, overview.dialect):
        raise AgentFailure(
            AgentErrorType.CONFIGURATION_ERROR,
            f"The database speaks {overview.dialect}, but BOS_SQL_DIALECT says {settings.dialect}. "
            "Correct or unset BOS_SQL_DIALECT.",
        )
    return overview


async def load_index(
    read: ReadSchema,
    settings: SqlSettings,
    overview: Overview,
    indexes: MetadataIndexes,
    backend: str = "",
) -> MetadataIndex:
    """Metadata index of the database of ``overview``, cached or built.

    The curated file describes the database of the settings; one that a request names by ``backend``
    is known by its own catalogue alone.

    Raises:
        AgentFailure: QueryError or ConfigurationError, as classified by mcp_db.
        ConfigurationError: the curated file names a table or field that does not exist.
    """

    async def load() -> Catalog:
        described: list[Mapping[str, Any]] = []
        names = [table.name for table in overview.tables]
        for start in range(0, len(names), _TABLES_PER_CALL):
            tables = names[start : start + _TABLES_PER_CALL]
            envelope = await read({"database": overview.database, "tables": tables})
            require_success(envelope)
            described += envelope["tables"]
        return replace(read_catalog(overview.database, described), narrowed=overview.narrowed)

    try:
        own = backend in ("", settings.database)
        return await indexes.get(overview.database, overview.fingerprint, load, curated=own)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_understood() from error


def bounded(overview: Overview, task: AgentInput) -> Overview:
    """``overview`` with the bounds of rows and columns that the request asks for."""
    rows = task.max_rows if task.HasField("max_rows") else overview.max_rows
    return replace(
        overview,
        max_rows=min(overview.max_rows, max(1, rows)),
        shown_columns=max(0, task.max_columns),
    )


def _require_known(envelope: Mapping[str, Any]) -> None:
    """Say which field of the request is wrong when mcp_db knows no such database."""
    error = envelope.get("error") or {}
    if error.get("reason") == _UNKNOWN_DATABASE:
        raise AgentFailure(
            AgentErrorType.INVALID_ARGUMENT,
            f"request.backend: {error.get('message')}",
            {"field": "request.backend", "reason": _UNKNOWN_DATABASE},
        )


def require_success(envelope: Mapping[str, Any]) -> None:
    """Raise a failure in the reply of ``mcp_db_schema``.

    Raises:
        AgentFailure: as classified by mcp_db.
    """
    if envelope.get("success") is not True:
        raise database_failure(envelope)


def database_failure(envelope: Mapping[str, Any]) -> AgentFailure:
    """Failure of the database that no other query would avoid, as classified by mcp_db."""
    error = envelope.get("error") or {}
    kind = error.get("type")
    reason = str(error.get("reason", ""))
    return AgentFailure(
        kind
        if kind in (AgentErrorType.QUERY_ERROR, AgentErrorType.CONFIGURATION_ERROR)
        else AgentErrorType.QUERY_ERROR,
        str(error.get("message") or "The database service failed."),
        {"reason": reason},
        retryable=reason in _TRANSIENT_REASONS,
    )


def database_sources(overview: Overview, tables: Iterable[str]) -> list[Source]:
    """Sources of an answer from ``tables``."""
    comments = {table.name: table.comment for table in overview.tables}
    titles = {table.name: table.title for table in overview.tables}
    return [
        Source(
            type=SourceType.SOURCE_TYPE_DATABASE,
            title=titles.get(table) or table,
            reference=f"{overview.database}.{table}",
            excerpt=comments.get(table, ""),
        )
        for table in tables
    ]


def read_overview(envelope: Mapping[str, Any], settings: SqlSettings) -> Overview:
    """Overview in a successful reply of ``mcp_db_schema`` without tables.

    Raises:
        Internal: the reply is none.
    """
    try:
        limits, dialect = envelope["limits"], envelope["dialect"]
        if dialect not in DIALECTS:
            raise _not_understood()
        return Overview(
            database=envelope["database"],
            description=envelope["description"],
            dialect=dialect,
            default_schema=envelope["default_schema"],
            max_rows=min(settings.max_rows, limits["max_rows"]),
            max_columns=min(settings.max_columns, limits["max_columns"]),
            tables=tuple(
                TableSummary(
                    each["name"],
                    each["kind"],
                    each["comment"],
                    each["row_estimate"],
                    each.get("title", ""),
                )
                for each in envelope["tables"]
            ),
            fingerprint=envelope.get("fingerprint", ""),
            narrowed=envelope.get("narrowed") is True,
        )
    except (KeyError, TypeError) as error:
        raise _not_understood() from error


def _not_understood() -> Internal:
    return Internal("The reply of the database service is not understood.")
