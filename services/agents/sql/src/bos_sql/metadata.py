"""What the database contains, as mcp_db tells it, and the part that matters for one question.

Until there is a metadata index (SPEC D-06), the grounding pack of D-07 is made of the database's
own catalogue: tables, columns, keys, comments, and frequent values of text columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.common.v1 import Source, SourceType
from bos_agentkit import CONFIGURATION_ERROR, QUERY_ERROR, AgentFailure
from bos_chassis.errors import Internal
from bos_sqlguard import DIALECTS, Dialect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bos_agentkit import AgentTask
    from bos_sql.settings import SqlSettings

_MAX_SNIPPET_CHARS = 200
# Failures of mcp_db that another attempt may not meet.
_TRANSIENT_REASONS = frozenset({"DATABASE_UNAVAILABLE"})


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One table in the overview."""

    name: str
    kind: str
    comment: str
    row_estimate: int | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The readable tables of one database (SPEC D-08)."""

    database: str
    description: str
    dialect: Dialect
    default_schema: str
    max_rows: int
    max_columns: int
    tables: tuple[TableSummary, ...]

    def known(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names`` that are tables here, spelled as here, each once."""
        spelled = {table.name.casefold(): table.name for table in self.tables}
        found = (spelled.get(name.strip().casefold()) for name in names)
        return tuple(dict.fromkeys(name for name in found if name))


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a statement about the data comes from (SPEC D-07)."""

    doc_id: str
    snippet: str


@dataclass(frozen=True, slots=True)
class GroundingPack:
    """What is known about the tables of one question (SPEC D-07)."""

    table_docs: tuple[str, ...] = ()
    """One text per table, its columns included."""
    field_docs: tuple[str, ...] = ()
    """One line per column, as ``table.column type …``."""
    relationship_docs: tuple[str, ...] = ()
    """One line per foreign key, as the condition of a join."""
    citations: tuple[Citation, ...] = ()
    suggested_tables: tuple[str, ...] = ()
    suggested_join_paths: tuple[str, ...] = ()

    def text(self, max_chars: int) -> str:
        """The pack as prompts show it."""
        joins = "\n".join(f"  {line}" for line in self.relationship_docs)
        parts = [*self.table_docs, *([f"Joins:\n{joins}"] if joins else [])]
        return "\n\n".join(parts)[:max_chars]


async def list_tables(task: AgentTask, settings: SqlSettings) -> Overview:
    """The overview (step ``list_tables`` of SPEC D-12).

    Raises:
        AgentFailure: QueryError or ConfigurationError, as mcp_db says.
    """
    envelope = await task.tools.call("mcp_db_schema", database=settings.database)
    require_success(envelope)
    overview = _read_overview(envelope, settings)
    if settings.dialect not in (None, overview.dialect):
        raise AgentFailure(
            CONFIGURATION_ERROR,
            f"The database speaks {overview.dialect}, but BOS_SQL_DIALECT says {settings.dialect}. "
            "Correct or unset BOS_SQL_DIALECT.",
        )
    task.trace.message("list_tables", database=overview.database, tables=len(overview.tables))
    return overview


async def call_get_schema(
    task: AgentTask, settings: SqlSettings, overview: Overview, tables: Sequence[str]
) -> GroundingPack:
    """Details of ``tables`` (optional step ``call_get_schema`` of SPEC D-12).

    Raises:
        AgentFailure: QueryError or ConfigurationError, as mcp_db says.
    """
    envelope = await task.tools.call(
        "mcp_db_schema", database=settings.database, tables=list(tables)
    )
    require_success(envelope)
    try:
        pack = _read_pack(overview.database, envelope["tables"])
    except (KeyError, TypeError) as error:
        raise _not_understood() from error
    task.trace.message(
        "call_get_schema",
        tables=list(pack.suggested_tables),
        citations=[citation.doc_id for citation in pack.citations],
    )
    return pack


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
        )
    except (KeyError, TypeError) as error:
        raise _not_understood() from error


def _read_pack(database: str, tables: Sequence[Mapping[str, Any]]) -> GroundingPack:
    joins = tuple(dict.fromkeys(line for table in tables for line in _joins(table)))
    return GroundingPack(
        table_docs=tuple(_table_doc(table) for table in tables),
        field_docs=tuple(
            f"{table['name']}.{_field_doc(table, column)}"
            for table in tables
            for column in table["columns"]
        ),
        relationship_docs=joins,
        citations=tuple(
            Citation(f"{database}.{table['name']}", _headline(table)[:_MAX_SNIPPET_CHARS])
            for table in tables
        ),
        suggested_tables=tuple(table["name"] for table in tables),
        suggested_join_paths=joins,
    )


def _table_doc(table: Mapping[str, Any]) -> str:
    fields = "\n".join(f"  {_field_doc(table, column)}" for column in table["columns"])
    return f"{_headline(table)}\n{fields}"


def _headline(table: Mapping[str, Any]) -> str:
    rows = table["row_estimate"]
    about = [table["kind"], *([f"about {rows} rows"] if rows is not None else [])]
    comment = " ".join(table["comment"].split())
    return f"{table['name']} ({', '.join(about)})" + (f": {comment}" if comment else "")


def _field_doc(table: Mapping[str, Any], column: Mapping[str, Any]) -> str:
    name = column["name"]
    parts = [f"{name} {column['type']}".rstrip()]
    if name in table["primary_key"]:
        parts.append("primary key")
    elif [name] in table["unique_keys"]:
        parts.append("unique")
    if column["nullable"]:
        parts.append("may be NULL")
    text = ", ".join(parts)
    if comment := " ".join(column["comment"].split()):
        text += f": {comment}"
    if values := column["sample_values"]:
        text += " (e.g. " + ", ".join(repr(value) for value in values) + ")"
    return text


def _joins(table: Mapping[str, Any]) -> Iterator[str]:
    for key in table["foreign_keys"]:
        yield " AND ".join(
            f"{table['name']}.{own} = {key['table']}.{other}"
            for own, other in zip(key["columns"], key["references"], strict=True)
        )


def _not_understood() -> Internal:
    return Internal("The reply of the database service is not understood.")
