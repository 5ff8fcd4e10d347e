"""Uploaded files in a task: whether it is about some, and the overview of their tables.

Files are the database ``files`` of mcp_db, which is asked only if a task sounds like it. Prompts,
calls and costs of every other task are those of a deployment without files.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_sql.database.metadata import read_overview, require_success

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bos_sql.database.metadata import Overview, ReadSchema, TableSummary
    from bos_sql.settings import SqlSettings

FILES_DATABASE: Final = "files"
"""Name of the database of uploaded files at mcp_db."""
# What says that there is no such database, or that this agent may not read it.
_NONE: Final = frozenset({"UNKNOWN_DATABASE", "FILES_NOT_OPEN"})

_NAME: Final = r"[^\s\"'“”‘’<>|]+\.(?:csv|tsv|xlsx|parquet)"
_KIND: Final = r"(?:csv|tsv|excel|xlsx|parquet)"
_WORDS: Final = r"(?:files?|sheets?|spreadsheets?|workbooks?)"
_SOUNDS: Final = re.compile(rf"{_NAME}\b|\b(?:{_KIND}|{_WORDS}|upload(?:s|ed)?)\b", re.IGNORECASE)
_MEANS_UPLOADS: Final = re.compile(
    r"\bupload(?:s|ed)?\b"
    rf"|\b(?:my|our|this|that|these|those|attached|(?:in|from|of|within)\s+the)\s+"
    rf"(?:{_KIND}\s+)?{_WORDS}\b",
    re.IGNORECASE,
)
_READS: Final = re.compile(
    rf"\b(?:in|from|of|within)\s+(?:the\s+)?(?:file\s+)?[\"'“‘]?(?P<file>{_NAME})\b", re.IGNORECASE
)
_WRITES: Final = re.compile(
    r"\b(?:to|into|as|named|called)\s+(?:the\s+|a\s+)?(?:file\s+)?[\"'“‘]?\Z", re.IGNORECASE
)
"""What stands before the name of a file that is to be made."""
_FILE_FOLLOWS: Final = re.compile(rf"[\"'”’]?\s+(?:{_KIND}|{_WORDS})\b")
_LISTED: Final = 10
_SHORTEST: Final = 3
"""Characters of the shortest name of a file that is looked for without its ending."""


def sounds_like_files(task: str) -> bool:
    """Whether a task may be about uploaded files, so that it pays to look at them."""
    return _SOUNDS.search(task) is not None


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
    surely = _MEANS_UPLOADS.search(task) or _READS.search(task)
    if reason in _NONE or (reason and not surely):
        return None
    require_success(envelope)
    overview = read_overview(envelope, settings)
    if named := _named(overview.tables, task):
        return _narrowed(overview, named)
    _require_readable(overview, envelope, task)
    return overview if overview.tables and _MEANS_UPLOADS.search(task) else None


def _named(tables: Iterable[TableSummary], task: str) -> tuple[TableSummary, ...]:
    """Tables whose file the task reads by name: with its ending, or as a file or an upload."""
    text = task.casefold()
    of_uploads = _MEANS_UPLOADS.search(text) is not None
    return tuple(table for table in tables if _reads(text, table, of_uploads=of_uploads))


def _reads(text: str, table: TableSummary, *, of_uploads: bool) -> bool:
    file = _file(table).casefold()
    if any(not _WRITES.search(text, 0, found.start()) for found in _said(text, file)):
        return True
    stem = file.rpartition(".")[0]
    short = {table.name.casefold(), *([stem] if len(stem) >= _SHORTEST else [])}
    return any(
        of_uploads or _FILE_FOLLOWS.match(text, found.end())
        for name in short
        for found in _said(text, name)
    )


def _said(text: str, name: str) -> Iterator[re.Match[str]]:
    """Where a text has the name, as words of their own."""
    return re.finditer(rf"(?<!\w){re.escape(name)}(?!\w|\.\w)", text)


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
        if file and any(_said(text, file.casefold())):
            raise _unreadable(f"The file {file!r} cannot be read as a table: {why}.")
    if (found := _READS.search(task)) is not None:
        files = sorted({_file(table) for table in overview.tables})
        shown = ", ".join(files[:_LISTED]) + (" and more" if len(files) > _LISTED else "")
        there = f"Uploaded and readable: {shown}." if files else "No file has been uploaded."
        raise _unreadable(f"There is no uploaded file {found['file']!r}. {there}")


def _file(table: TableSummary) -> str:
    """Name of the file of a table, whose title has the sheet behind it; no name has a slash."""
    return table.title.partition(" / ")[0] if table.title else table.name


def _unreadable(message: str) -> AgentFailure:
    return AgentFailure(AgentErrorType.INVALID_ARGUMENT, message)
