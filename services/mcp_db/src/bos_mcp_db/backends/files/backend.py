"""Files of one user as a database: the tables that they become, and queries over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from bos.common.v1 import ColumnType as WireType
from bos_chassis.values import from_value
from bos_mcp_db.backends.backend import ColumnType, Result, TableColumn, TableInfo, refuse_role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.common.v1 import Column
    from bos.files.v1 import FileTable, FileWithoutTable
    from bos_mcp_db.backends.backend import Limits
    from bos_mcp_db.backends.files.client import FileTables
    from bos_sqlguard import Dialect, Kept

_TEXT = "VARCHAR"


class FilesBackend:
    """Adapter for the files of one user, as they were listed for the call in progress.

    Args:
        files: Asks the files service.
        tables: What the user's files become.
        rejected: Files that cannot be tables, and why.
    """

    dialect: Dialect = "duckdb"
    default_schema = "main"

    def __init__(
        self,
        files: FileTables,
        tables: Sequence[FileTable],
        rejected: Sequence[FileWithoutTable],
    ) -> None:
        self.rejected = tuple(rejected)
        self._files = files
        self._tables = {table.name: table for table in tables}

    def reading(self, tables: Sequence[str], role: str) -> FilesBackend:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        refuse_role(role)
        kept = [table for name, table in self._tables.items() if name in tables]
        return FilesBackend(self._files, kept, self.rejected)

    async def query(self, sql: str, limits: Limits, kept: Kept | None = None) -> Result:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        table = (await self._files.query(sql, limits)).table
        return Result(
            columns=[column.name for column in table.columns],
            types=[_column_type(column) for column in table.columns],
            rows=[[from_value(cell) for cell in row.values] for row in table.rows],
            truncated=table.truncated,
        )

    async def describe(self, tables: Sequence[str]) -> list[TableInfo]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        return [_described(self._tables[name]) for name in tables if name in self._tables]

    async def aclose(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`; nothing of its own is open."""


def _described(table: FileTable) -> TableInfo:
    kind: Literal["table"] = "table"
    sheet = f"Sheet {table.sheet} of the" if table.sheet else "The"
    return TableInfo(
        name=table.name,
        kind=kind,
        comment=" ".join([f"{sheet} uploaded file {table.file}.", *table.notes]).removesuffix("."),
        row_estimate=table.row_count,
        columns=[
            TableColumn(
                name=column.name,
                type=column.type.lower(),
                nullable=True,
                comment="" if column.title == column.name else column.title,
                is_text=column.type == _TEXT,
            )
            for column in table.columns
        ],
        title=f"{table.file} / {table.sheet}" if table.sheet else table.file,
    )


def _column_type(column: Column) -> ColumnType:
    name = WireType.Name(column.type).removeprefix("COLUMN_TYPE_").lower()
    for known in get_args(ColumnType):
        if name == known:
            found: ColumnType = known
            return found
    return "unspecified"
