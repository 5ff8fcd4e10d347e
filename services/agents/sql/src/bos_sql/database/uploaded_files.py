"""Uploaded files in a task: whether it is about some, and the overview of their tables.

Files are the database ``files`` of mcp_db, which is asked only if a task sounds like it. Prompts,
calls and costs of every other task are those of a deployment without files.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_sql.database.file_words import (
    calls_file,
    file_read,
    is_no_table,
    means_uploads,
    reads_file,
    says,
)
from bos_sql.database.metadata import read_overview, require_success

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bos_sql.database.metadata import Overview, ReadSchema, TableSummary
    from bos_sql.settings import SqlSettings

FILES_DATABASE: Final = "files"
"""Name of the database of uploaded files at mcp_db."""
# What says that there is no such database, or that this agent may not read it.
_NONE: Final = frozenset({"UNKNOWN_DATABASE", "FILES_NOT_OPEN"})

_LISTED: Final = 10
_SHORTEST: Final = 3
"""Characters of the shortest name of a file that is looked for without its ending."""


async def files_overview(read: ReadSchema, settings: SqlSettings, task: str) -> Overview | None:
    """Read the tables of uploaded files that a task is about; None if it is about none.

    Args:
        read: Calls mcp_db.
        settings: Bound results.
        task: What is to be found out. Files that it names are taken, with or without ending; if it
            speaks of uploads and names none, all of them.

    Raises:
        AgentFailure: InvalidArgument where it reads from a file that is not there or is no table;
            else as classified by mcp_db.
    """
    envelope = await read({"database": FILES_DATABASE})
    reason = (envelope.get("error") or {}).get("reason")
    surely = means_uploads(task) or file_read(task)
    if reason in _NONE or (reason and not surely):
        return None
    require_success(envelope)
    overview = read_overview(envelope, settings)
    if named := _named(overview.tables, task):
        return _narrowed(overview, named)
    _require_readable(overview, envelope, task)
    return overview if overview.tables and means_uploads(task) else None


def _named(tables: Iterable[TableSummary], task: str) -> tuple[TableSummary, ...]:
    """Tables whose file the task reads by name: with its ending, or as a file or an upload."""
    text, of_uploads = task.casefold(), means_uploads(task)
    return tuple(table for table in tables if _reads(text, table, of_uploads=of_uploads))


def _reads(text: str, table: TableSummary, *, of_uploads: bool) -> bool:
    file = _file(table).casefold()
    if reads_file(text, file):
        return True
    stem = file.rpartition(".")[0]
    short = {table.name.casefold(), *([stem] if len(stem) >= _SHORTEST else [])}
    return any((of_uploads and says(text, name)) or calls_file(text, name) for name in short)


def _narrowed(overview: Overview, tables: tuple[TableSummary, ...]) -> Overview:
    """The overview with these tables alone, under a fingerprint of their own."""
    names = "\n".join(table.name for table in tables)
    digest = hashlib.sha256(names.encode()).hexdigest()[:16]
    fingerprint = f"{overview.fingerprint}-{digest}" if overview.fingerprint else ""
    return replace(overview, tables=tables, fingerprint=fingerprint)


def _require_readable(overview: Overview, envelope: Mapping[str, Any], task: str) -> None:
    """Say so where a task reads from a file that is no table, or not there: no other data will do.

    Raises:
        AgentFailure: names the file.
    """
    text = task.casefold()
    for each in envelope.get("rejected") or ():
        file, why = str(each.get("file", "")), str(each.get("reason", ""))
        if file and reads_file(text, file.casefold()):
            raise _unreadable(f"The file {file!r} cannot be read as a table: {why}.")
    name = file_read(task)
    if not name:
        return
    if is_no_table(name):
        raise _unreadable(
            f"The file {name!r} cannot be read as a table. Save it as CSV or XLSX and upload that."
        )
    files = sorted({_file(table) for table in overview.tables})
    shown = ", ".join(files[:_LISTED]) + (" and more" if len(files) > _LISTED else "")
    there = f"Uploaded and readable: {shown}." if files else "No file has been uploaded."
    raise _unreadable(f"There is no uploaded file {name!r}. {there}")


def _file(table: TableSummary) -> str:
    """Name of the file of a table, whose title has the sheet behind it; no name has a slash."""
    return table.title.partition(" / ")[0] if table.title else table.name


def _unreadable(message: str) -> AgentFailure:
    return AgentFailure(AgentErrorType.INVALID_ARGUMENT, message)
