"""A files service at its gRPC boundary: tables of two users, by their run tokens."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from bos.files.v1 import (
    FileColumn,
    FileTable,
    FileTableServiceServicer,
    FileWithoutTable,
    ListFileTablesResponse,
    QueryFileTablesResponse,
    add_FileTableServiceServicer_to_server,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenVerifier
from bos_chassis.values import make_table
from bos_errors import BosError, abort_with

SALES = FileTable(
    name="sales",
    file="Sales.csv",
    digest="sha256:1",
    columns=[
        FileColumn(name="region", type="VARCHAR", title="Region"),
        FileColumn(name="amount", type="DECIMAL(18,2)", title="amount"),
    ],
    row_count=2,
)
PLAN = FileTable(
    name="plan",
    file="Plan 2025.xlsx",
    digest="sha256:2",
    sheet="Targets",
    columns=[FileColumn(name="goal", type="BIGINT", title="goal")],
    row_count=1,
)


@dataclass
class FileTablesDouble(FileTableServiceServicer):
    """Answers as configured, and keeps what it was asked."""

    public_key: str
    tables: dict[str, Sequence[FileTable]] = field(default_factory=dict)
    rejected: Sequence[FileWithoutTable] = ()
    columns: Sequence[Any] = ("region", "amount")
    rows: Sequence[Sequence[Any]] = ()
    fails: BosError | None = None
    asked: list[tuple[str, Any]] = field(default_factory=list)

    async def ListFileTables(self, request: Any, context: Any) -> ListFileTablesResponse:
        user = self._user(context)
        return ListFileTablesResponse(tables=self.tables.get(user, ()), rejected=self.rejected)

    async def QueryFileTables(self, request: Any, context: Any) -> QueryFileTablesResponse:
        self.asked.append((self._user(context), request))
        if self.fails is not None:
            await abort_with(context, self.fails)
        return QueryFileTablesResponse(table=make_table(self.columns, self.rows))

    def _user(self, context: Any) -> str:
        token = dict(context.invocation_metadata())[RUN_TOKEN_KEY]
        return RunTokenVerifier([self.public_key], "file_tables").verify(token).user_id


@asynccontextmanager
async def serving(double: FileTablesDouble) -> AsyncIterator[str]:
    """Serve it; yields its address."""
    server = grpc.aio.server()
    add_FileTableServiceServicer_to_server(double, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
