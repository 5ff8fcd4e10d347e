"""What the database contains, as mcp_db tells it: the overview, and the catalogue of the index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bos.common.v1 import Source, SourceType
from bos_agentkit import CONFIGURATION_ERROR, QUERY_ERROR, AgentFailure
from bos_errors import Internal
from bos_sql.grounding.catalog import read_catalog
from bos_sqlguard import DIALECTS, Dialect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from bos_sql.grounding.cache import MetadataIndexes
    from bos_sql.grounding.catalog import Catalog
    from bos_sql.grounding.index import MetadataIndex
    from bos_sql.settings import SqlSettings

    ReadSchema = Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]]
    """Calls mcp_db's tool ``mcp_db_schema`` with these arguments."""

# As many as mcp_db describes at once.
_TABLES_PER_CALL = 100
# Failures of mcp_db that another attempt may not meet.
_TRANSIENT_REASONS = frozenset({"DATABASE_UNAVAILABLE", "DATABASE_BUSY"})


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One table in the overview."""

    name: str
    kind: str
    comment: str
    row_estimate: int | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The readable tables of one database."""

    database: str
    description: str
    dialect: Dialect
    default_schema: str
    max_rows: int
    max_columns: int
    tables: tuple[TableSummary, ...]
    fingerprint: str = ""
    """Of the schema; empty: mcp_db did not tell."""
    narrowed: bool = False
    """Whether the asker may read only some of the tables that there are."""

    def known(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names`` that are tables here, spelled as here, each once."""
        spelled = {table.name.casefold(): table.name for table in self.tables}
        found = (spelled.get(name.strip().casefold()) for name in names)
        return tuple(dict.fromkeys(name for name in found if name))


async def list_tables(read: ReadSchema, settings: SqlSettings) -> Overview:
    """The overview (step ``list_tables``).

    Raises:
        AgentFailure: QueryError or ConfigurationError, as mcp_db says.
    """
    envelope = await read({"database": settings.database})
    require_success(envelope)
    overview = _read_overview(envelope, settings)
    if settings.dialect not in (None, overview.dialect):
        raise AgentFailure(
            CONFIGURATION_ERROR,
            f"The database speaks {overview.dialect}, but BOS_SQL_DIALECT says {settings.dialect}. "
            "Correct or unset BOS_SQL_DIALECT.",
        )
    return overview


async def load_index(
    read: ReadSchema, settings: SqlSettings, overview: Overview, indexes: MetadataIndexes
) -> MetadataIndex:
    """The metadata index of the database of ``overview``.

    Raises:
        AgentFailure: QueryError or ConfigurationError, as mcp_db says.
        ConfigurationError: the curated file names what is not there.
    """

    async def load() -> Catalog:
        described: list[Mapping[str, Any]] = []
        names = [table.name for table in overview.tables]
        for start in range(0, len(names), _TABLES_PER_CALL):
            tables = names[start : start + _TABLES_PER_CALL]
            envelope = await read({"database": settings.database, "tables": tables})
            require_success(envelope)
            described += envelope["tables"]
        return replace(read_catalog(overview.database, described), narrowed=overview.narrowed)

    try:
        return await indexes.get(overview.database, overview.fingerprint, load)
    except (KeyError, TypeError, ValueError) as error:
        raise _not_understood() from error


def require_success(envelope: Mapping[str, Any]) -> None:
    """Turn a failure in the reply of ``mcp_db_schema`` into an exception.

    Raises:
        AgentFailure: as mcp_db classified it.
    """
    if envelope.get("success") is not True:
        raise database_failure(envelope)


def database_failure(envelope: Mapping[str, Any]) -> AgentFailure:
    """A failure that no other query would mend, as mcp_db classified it."""
    error = envelope.get("error") or {}
    kind = error.get("type")
    reason = str(error.get("reason", ""))
    return AgentFailure(
        kind if kind in (QUERY_ERROR, CONFIGURATION_ERROR) else QUERY_ERROR,
        str(error.get("message") or "The database service failed."),
        {"reason": reason},
        retryable=reason in _TRANSIENT_REASONS,
    )


def database_sources(overview: Overview, tables: Iterable[str]) -> list[Source]:
    """What an answer from ``tables`` rests on."""
    comments = {table.name: table.comment for table in overview.tables}
    return [
        Source(
            type=SourceType.SOURCE_TYPE_DATABASE,
            title=table,
            reference=f"{overview.database}.{table}",
            excerpt=comments.get(table, ""),
        )
        for table in tables
    ]


def _read_overview(envelope: Mapping[str, Any], settings: SqlSettings) -> Overview:
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
                TableSummary(each["name"], each["kind"], each["comment"], each["row_estimate"])
                for each in envelope["tables"]
            ),
            fingerprint=envelope.get("fingerprint", ""),
            narrowed=envelope.get("narrowed") is True,
        )
    except (KeyError, TypeError) as error:
        raise _not_understood() from error


def _not_understood() -> Internal:
    return Internal("The reply of the database service is not understood.")
