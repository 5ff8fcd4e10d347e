"""Tables of files: their descriptions, and queries over them, each in a process of its own.

Whose files they are the caller knows: an engine holds no file, and answers from nothing but those
it is given. Every query passes the guard here; DuckDB is locked besides, so that one that got
through would reach the given tables alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from bos_errors import Internal
from bos_files.queries.cells import decode
from bos_files.queries.failures import (
    FileNotReadable,
    QueryFailed,
    QueryRefused,
    QueryTimedOut,
    QueryTooLarge,
)
from bos_files.queries.limits import QueryLimits
from bos_files.queries.names import table_names
from bos_sqlguard import Guard, GuardPolicy

_WORKER: Final = "bos_files.queries.worker"
_MOST_DESCRIBED: Final = 1_000
_REPLY_FACTOR: Final = 4
"""How much longer a reply may be than the values in it: escapes, and names of types."""
_REPLY_BYTES: Final = 4 * 1024 * 1024

KINDS: Final = {
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    ".parquet": "parquet",
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "workbook"),
}
"""Kinds of files that become tables, by the end of their name."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a user.

    Attributes:
        name: as the user calls it.
        digest: of its content; what was found of equal content is not looked for again.
        size_bytes: of its content.
        content: reads it.
    """

    name: str
    digest: str
    size_bytes: int
    content: Callable[[], Awaitable[bytes]]

    @property
    def kind(self) -> str:
        """csv, parquet or workbook; empty for a file that cannot become a table."""
        return KINDS.get(os.path.splitext(self.name)[1].lower(), "")


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column: its name, its type in DuckDB, and its heading in the file."""

    name: str
    type: str
    title: str


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table: its name, source and columns, and notes on how it was read."""

    name: str
    file: str
    sheet: str
    columns: tuple[FileColumn, ...]
    rows: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows of a query. ``types`` are lower-case names of ``bos.common.v1.ColumnType``."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool
    used_tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Described:
    """Result of reading a file: its sheets, or why it is no table."""

    sheets: tuple[dict[str, Any], ...] = ()
    rejected: str = ""


class QueryEngine:
    """Describes files as tables, and runs queries over them.

    Args:
        limits: Of files, queries and their process.
        at_once: Processes at once; more wait.
    """

    def __init__(self, limits: QueryLimits, *, at_once: int) -> None:
        self._limits = limits
        self._places = asyncio.Semaphore(at_once)
        self._described: OrderedDict[tuple[str, str], _Described] = OrderedDict()

    async def tables(self, files: Sequence[TableFile]) -> tuple[list[FileTable], dict[str, str]]:
        """Return the tables of the files, and for each unreadable file why.

        Names are those of :func:`~bos_files.queries.names.table_names`, so equal files have equal
        tables.

        Raises:
            Internal: a process ended without a reply.
        """
        found, rejected = {}, {}
        candidates = sorted((each for each in files if each.kind), key=lambda each: each.name)
        for file in candidates[self._limits.max_files :]:
            rejected[file.name] = f"only {self._limits.max_files} files become tables"
        for file in candidates[: self._limits.max_files]:
            described = await self._describe(file)
            if described.rejected:
                rejected[file.name] = described.rejected
            else:
                found[file.name] = described.sheets
        names = table_names((name, [s["sheet"] for s in found[name]]) for name in found)
        tables = [
            FileTable(
                names[file, place],
                file,
                sheet["sheet"],
                tuple(FileColumn(*column) for column in sheet["columns"]),
                sheet["rows"],
                tuple(sheet["notes"]),
            )
            for file, sheets in sorted(found.items())
            for place, sheet in enumerate(sheets)
        ]
        return tables, rejected

    async def query(
        self, files: Sequence[TableFile], sql: str, limits: QueryLimits | None = None
    ) -> QueryResult:
        """Run one query over the tables of the files; cancelling ends its process.

        Args:
            files: all that the caller may read.
            sql: one SELECT.
            limits: of this query; None: those of the engine.

        Raises:
            QueryRefused: the guard says no; names the rules.
            QueryFailed: DuckDB says no, in its words.
            QueryTimedOut: the files and the query took longer than they may.
            QueryTooLarge: they took more memory.
            FileNotReadable: a file changed under way, or all of them are too large together.
        """
        limits = limits or self._limits
        tables, _ = await self.tables(files)
        guard = Guard(
            GuardPolicy(
                "duckdb",
                frozenset(table.name for table in tables),
                max_rows=limits.max_rows,
                max_columns=limits.max_columns,
            )
        )
        verdict = guard.check(sql)
        if not verdict.is_safe:
            raise QueryRefused(verdict.user_message, verdict.violations)
        return await self.run(files, tables, verdict.safe_sql, verdict.used_tables, limits)

    async def run(
        self,
        files: Sequence[TableFile],
        tables: Sequence[FileTable],
        sql: str,
        used_tables: tuple[str, ...],
        limits: QueryLimits | None = None,
    ) -> QueryResult:
        """Run a query that the guard wrote; no other file than those of its tables is loaded."""
        limits = limits or self._limits
        used = {table.file for table in tables if table.name in used_tables}
        chosen = [
            (file, [table.name for table in tables if table.file == file.name])
            for file in files
            if file.name in used
        ]
        named = ", ".join(sorted(used))
        if sum(file.size_bytes for file, _ in chosen) > limits.max_query_bytes:
            most = f"those of one query may have {limits.max_query_bytes} bytes together"
            raise FileNotReadable(named, most)
        reply = await self._reply(chosen, sql, limits)
        if "rejected" in reply:
            raise FileNotReadable(named, str(reply["rejected"]))
        if reply.get("too_large"):
            raise QueryTooLarge
        if "failed" in reply:
            raise QueryFailed(str(reply["failed"]))
        return QueryResult(
            columns=[str(each) for each in reply["columns"]],
            types=[str(each) for each in reply["types"]],
            rows=[[decode(cell) for cell in row] for row in reply["rows"]],
            truncated=bool(reply["truncated"]),
            used_tables=used_tables,
        )

    async def _describe(self, file: TableFile) -> _Described:
        key = (file.digest, file.kind)
        if (known := self._described.get(key)) is not None:
            self._described.move_to_end(key)
            return known
        if file.size_bytes > self._limits.max_file_bytes:
            return _Described(rejected=f"it is larger than {self._limits.max_file_bytes} bytes")
        try:
            reply = await self._reply([(file, None)], None, self._limits)
        except (QueryTimedOut, QueryTooLarge):
            reply = {"too_large": True}
        if reply.get("too_large"):
            found = _Described(rejected="it takes more time or memory than it may")
        elif "rejected" in reply or "failed" in reply:
            found = _Described(rejected=str(reply.get("rejected", "it is damaged")))
        else:
            found = _Described(sheets=tuple(reply["tables"]))
        self._described[key] = found
        while len(self._described) > _MOST_DESCRIBED:
            self._described.popitem(last=False)
        return found

    async def _reply(
        self,
        files: Sequence[tuple[TableFile, list[str] | None]],
        sql: str | None,
        limits: QueryLimits,
    ) -> dict[str, Any]:
        """Start a process, give it the files and return its reply."""
        async with self._places:
            contents = [await file.content() for file, _ in files]
            header = json.dumps(
                {
                    "limits": asdict(limits),
                    "sql": sql,
                    "files": [
                        {"kind": file.kind, "tables": names, "size": len(content)}
                        for (file, names), content in zip(files, contents, strict=True)
                    ],
                }
            ).encode()
            request = b"".join([len(header).to_bytes(4, "big"), header, *contents])
            output = await self._run(request, limits)
        try:
            reply: dict[str, Any] = json.loads(output)
        except ValueError:
            # Out of memory or processor time: the system ended it.
            raise QueryTooLarge from None
        return reply

    async def _run(self, request: bytes, limits: QueryLimits) -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", _WORKER),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            # Neither keys of models nor addresses of databases are any business of it.
            env={name: os.environ[name] for name in ("TMPDIR",) if name in os.environ},
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limits.timeout_s):
                return await self._exchange(process, request, limits)
        except TimeoutError:
            raise QueryTimedOut(limits.timeout_s) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _exchange(
        self, process: asyncio.subprocess.Process, request: bytes, limits: QueryLimits
    ) -> bytes:
        """Write the request and read the reply, of which there is only so much."""
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise Internal("A process was started without pipes.")

        async def send() -> None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stdin.write(request)
                await stdin.drain()
                stdin.close()

        most = _REPLY_FACTOR * limits.max_bytes + _REPLY_BYTES
        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            reading = group.create_task(_at_most(stdout, most))
        return reading.result()


async def _at_most(stream: asyncio.StreamReader, most: int) -> bytes:
    """All of a stream; empty if it is longer than it may be."""
    parts, length = [], 0
    while part := await stream.read(65_536):
        length += len(part)
        if length > most:
            return b""
        parts.append(part)
    return b"".join(parts)
