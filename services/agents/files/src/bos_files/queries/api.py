"""The gRPC face of tables of files, for steps of runs: each reads the files of its user."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from bos.common.v1 import Column, Table
from bos.files.v1 import (
    FileColumn,
    FileTable,
    FileTableServiceServicer,
    FileWithoutTable,
    ListFileTablesRequest,
    ListFileTablesResponse,
    QueryFileTablesRequest,
    QueryFileTablesResponse,
)
from bos_chassis.auth.callers import LOCAL_USER, current_principal
from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait
from bos_chassis.values import make_table, unique_names
from bos_errors import BosError
from bos_files.metrics import FilesMetrics
from bos_files.queries.engine import QueryEngine, QueryResult, TableFile
from bos_files.queries.failures import QueriesBusy, QueryTimedOut
from bos_files.queries.limits import QueryLimits
from bos_files.workspaces.rows import Stored
from bos_files.workspaces.workspace import Workspaces

SERVICE_NAME: Final = "bos.files.v1.FileTableService"
AUDIENCE: Final = "file_tables"
"""What run tokens must name to be accepted here. Not the name of the agent of this server: a token
that another agent is handed must not look like one of its own."""
_PAGE: Final = 500


class FileTableServicer(FileTableServiceServicer):
    """Implements ``bos.files.v1.FileTableService``.

    Args:
        workspaces: Files of users.
        engine: Describes them, and answers queries.
        limits: Of the engine.
        at_once: Queries at once, which the users share.
        queue_timeout_s: How long a query waits for its turn.
        metrics: Where queries are counted.
    """

    def __init__(
        self,
        workspaces: Workspaces,
        engine: QueryEngine,
        limits: QueryLimits,
        *,
        at_once: int,
        queue_timeout_s: float,
        metrics: FilesMetrics,
    ) -> None:
        self._workspaces = workspaces
        self._engine = engine
        self._limits = limits
        self._places = FairPlaces(at_once)
        self._queue_timeout_s = queue_timeout_s
        self._metrics = metrics

    async def ListFileTables(
        self, request: ListFileTablesRequest, context: Any
    ) -> ListFileTablesResponse:
        """Tables of the files of the run's user."""
        files = await self._files(_user())
        tables, rejected = await self._engine.tables(files)
        digests = {file.name: file.digest for file in files}
        return ListFileTablesResponse(
            tables=[
                FileTable(
                    name=table.name,
                    file=table.file,
                    digest=f"sha256:{digests[table.file]}",
                    sheet=table.sheet,
                    columns=[
                        FileColumn(name=each.name, type=each.type, title=each.title)
                        for each in table.columns
                    ],
                    row_count=table.rows,
                    notes=table.notes,
                )
                for table in tables
            ],
            rejected=[FileWithoutTable(file=file, reason=why) for file, why in rejected.items()],
        )

    async def QueryFileTables(
        self, request: QueryFileTablesRequest, context: Any
    ) -> QueryFileTablesResponse:
        """Rows of one query over the tables of the files of the run's user."""
        started, outcome = time.perf_counter(), "cancelled"
        try:
            result = await self._query(request, context.time_remaining())
            outcome = "ok"
            return result
        except BosError as error:
            outcome = error.reason.lower()
            raise
        except Exception:
            outcome = "internal"
            raise
        finally:
            self._metrics.queried(outcome, time.perf_counter() - started)

    async def _query(
        self, request: QueryFileTablesRequest, remaining_s: float | None
    ) -> QueryFileTablesResponse:
        user_id = _user()
        until = time.monotonic() + min(
            self._limits.timeout_s + self._queue_timeout_s, remaining_s or float("inf")
        )
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._queue_timeout_s):
                    await stack.enter_async_context(self._places.place(user_id))
            except (TimeoutError, NoPlaceToWait):
                raise QueriesBusy from None
            limits = self._lowered(request, until - time.monotonic())
            files = await self._files(user_id)
            result = await self._engine.query(files, request.sql, limits)
        return QueryFileTablesResponse(table=_table(result), used_tables=result.used_tables)

    def _lowered(self, request: QueryFileTablesRequest, remaining_s: float) -> QueryLimits:
        """The limits of a query: the caller may lower them, and has only so much time."""
        if remaining_s <= 0:
            raise QueryTimedOut(self._limits.timeout_s)
        own = self._limits
        return replace(
            own,
            max_rows=min(own.max_rows, request.max_rows or own.max_rows),
            max_columns=min(own.max_columns, request.max_columns or own.max_columns),
            max_bytes=min(own.max_bytes, request.max_bytes or own.max_bytes),
            timeout_s=min(own.timeout_s, remaining_s),
        )

    async def _files(self, user_id: str) -> list[TableFile]:
        """The current versions of the files that may become tables."""
        found: list[TableFile] = []
        after = ""
        while page := await self._workspaces.store.listed(user_id, after, _PAGE):
            files = (self._file(user_id, stored) for stored in page)
            found += [file for file in files if file.kind]
            after = page[-1].name
            if len(page) < _PAGE:
                break
        return found

    def _file(self, user_id: str, stored: Stored) -> TableFile:
        async def content() -> bytes:
            return await self._workspaces.content(user_id, stored)

        return TableFile(stored.name, stored.digest, stored.size_bytes, content)


def _table(result: QueryResult) -> Table:
    columns = [
        Column(name=name, type=f"COLUMN_TYPE_{kind.upper()}")
        for name, kind in zip(unique_names(result.columns), result.types, strict=True)
    ]
    rows = [[_with_zone(cell) for cell in row] for row in result.rows]
    return make_table(columns, rows, truncated=result.truncated)


def _with_zone(cell: Any) -> Any:
    """Moments of files have no time zone; every reader of the result takes them for UTC."""
    if isinstance(cell, datetime) and cell.tzinfo is None:
        return cell.replace(tzinfo=UTC)
    if isinstance(cell, list):
        return [_with_zone(each) for each in cell]
    return cell


def _user() -> str:
    """User of the calling run; without authentication all callers are one user."""
    principal = current_principal()
    return LOCAL_USER if principal is None else principal.user_id
