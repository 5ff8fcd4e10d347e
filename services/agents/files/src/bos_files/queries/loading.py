"""Files into tables of an open DuckDB; runs in the process of a query, before DuckDB is locked."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from bos_files.queries.names import column_names
from bos_files.queries.reading.columns import make_typed, quoted
from bos_files.queries.reading.text_files import open_text, write_rows
from bos_files.queries.reading.totals import left_out_total
from bos_files.queries.reading.workbooks import open_workbook
from bos_files.queries.rejections import FileRejected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from duckdb import DuckDBPyConnection

    from bos_files.queries.limits import QueryLimits

_RAW: Final = "bos raw"
_ROWS_AT_ONCE: Final = 2_000
_MAX_TITLE_CHARS: Final = 200
_MAX_NOTES: Final = 12
_MAX_NOTE_CHARS: Final = 300
_PLAIN: Final = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT",
    "UINTEGER", "UBIGINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIME", "TIMESTAMP",
    "UUID", "INTERVAL",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as it is in DuckDB.

    Attributes:
        sheet: title of the sheet; empty for a file that has none.
        columns: name, type and heading of each column.
        rows: how many there are.
        notes: what a reader should know of how the file was read.
    """

    sheet: str
    columns: list[tuple[str, str, str]]
    rows: int
    notes: list[str]


class Loader:
    """Makes tables of files.

    Args:
        connection: DuckDB, not locked.
        limits: Of files and tables.
    """

    def __init__(self, connection: DuckDBPyConnection, limits: QueryLimits) -> None:
        self._connection = connection
        self._limits = limits

    def load(self, content: bytes, kind: str, targets: Sequence[str] | None) -> list[LoadedTable]:
        """Make the tables of one file.

        Args:
            content: The file.
            kind: csv, parquet or workbook.
            targets: Names of its tables, in the order of its sheets; None: to be described alone.

        Raises:
            FileRejected: it cannot be read as tables, or is beyond the limits.
        """
        if len(content) > self._limits.max_file_bytes:
            raise FileRejected(f"it is larger than {self._limits.max_file_bytes} bytes")
        if kind == "workbook":
            return self._load_workbook(content, targets)
        target = targets[0] if targets else "bos described"
        if kind == "parquet":
            return [self._load_parquet(content, target)]
        return [self._load_text(content, target)]

    def _load_text(self, content: bytes, target: str) -> LoadedTable:
        table = open_text(content, self._limits)
        with _folder() as folder:
            path = folder / "rows"
            table = write_rows(table, self._limits, path)
            columns = {f"c{place}": "VARCHAR" for place in range(1, len(table.titles) + 1)}
            self._connection.execute(
                # Names in statements are quoted, or our own.
                f"CREATE TABLE {quoted(_RAW)} AS SELECT * FROM read_csv(?, auto_detect = false,"  # noqa: S608
                " columns = ?, header = false, delim = ',', quote = '\"', escape = '\"',"
                " new_line = '\\n', parallel = false, max_line_size = ?)",
                [str(path), columns, self._longest_line(len(columns))],
            )
        return self._typed(_RAW, target, "", table.titles, table.notes)

    def _longest_line(self, columns: int) -> int:
        """Bytes of the longest row that may be written for DuckDB, which refuses longer ones."""
        return min(16 * self._limits.max_row_bytes, 8 * self._limits.max_row_bytes * columns)

    def _load_parquet(self, content: bytes, target: str) -> LoadedTable:
        try:
            with _folder() as folder:
                path = str(folder / "file")
                Path(path).write_bytes(content)
                described = self._connection.execute(
                    "DESCRIBE SELECT * FROM read_parquet(?)", [path]
                ).fetchall()
                if len(described) > self._limits.max_file_columns:
                    raise FileRejected(f"it has {len(described)} columns")
                titles = [str(name) for name, *_ in described]
                names = column_names(titles)
                listed = ", ".join(
                    f"{_flat(title, str(kind))} AS {quoted(name)}"
                    for name, (title, kind, *_) in zip(names, described, strict=True)
                )
                self._connection.execute(
                    f"CREATE TABLE {quoted(target)} AS SELECT {listed} FROM read_parquet(?)"  # noqa: S608
                    f" LIMIT {self._limits.max_file_rows + 1}",
                    [path],
                )
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error:
            raise FileRejected("it is no Parquet file, or damaged") from None
        return self._described(target, "", titles, [])

    def _load_workbook(self, content: bytes, targets: Sequence[str] | None) -> list[LoadedTable]:
        sheets = open_workbook(content, self._limits)
        if not sheets:
            raise FileRejected("none of its visible sheets holds a table")
        loaded = []
        for place, sheet in enumerate(sheets):
            target = targets[place] if targets else f"bos described {place}"
            columns = ", ".join(f"c{at} VARCHAR" for at in range(1, len(sheet.titles) + 1))
            self._connection.execute(f"CREATE TABLE {quoted(_RAW)} ({columns})")
            self._insert(sheet.rows, len(sheet.titles))
            loaded.append(self._typed(_RAW, target, sheet.title, sheet.titles, sheet.notes))
        return loaded

    def _insert(self, rows: Sequence[Sequence[str | None]], width: int) -> None:
        unnested = ", ".join(f"unnest(${place}::VARCHAR[])" for place in range(1, width + 1))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = rows[start : start + _ROWS_AT_ONCE]
            self._connection.execute(
                f"INSERT INTO {quoted(_RAW)} SELECT {unnested}",
                [[row[at] for row in part] for at in range(width)],
            )

    def _typed(
        self,
        source: str,
        target: str,
        sheet: str,
        titles: Sequence[str],
        notes: Sequence[str],
    ) -> LoadedTable:
        found = make_typed(self._connection, source, target, column_names(titles))
        self._connection.execute(f"DROP TABLE {quoted(source)}")
        total = left_out_total(self._connection, target)
        return self._described(target, sheet, titles, [*notes, *found, *total])

    def _described(
        self, target: str, sheet: str, titles: Sequence[str], notes: Sequence[str]
    ) -> LoadedTable:
        found: list[tuple[Any, ...]] = self._connection.execute(
            f"DESCRIBE {quoted(target)}"
        ).fetchall()
        counted = f"SELECT count(*) FROM {quoted(target)}"  # noqa: S608
        rows = self._connection.execute(counted).fetchone()
        count = int(rows[0]) if rows else 0
        if count > self._limits.max_file_rows:
            raise FileRejected(f"it has more than {self._limits.max_file_rows} rows")
        columns = [
            (str(name), str(kind), title[:_MAX_TITLE_CHARS])
            for (name, kind, *_), title in zip(found, titles, strict=True)
        ]
        notes = [note[:_MAX_NOTE_CHARS] for note in notes[:_MAX_NOTES]]
        return LoadedTable(sheet[:_MAX_TITLE_CHARS], columns, count, notes)


def _flat(title: str, kind: str) -> str:
    """A column of Parquet; nested values and bytes become text."""
    plain = kind.split("(")[0].split(" ")[0] in _PLAIN and not kind.endswith("]")
    return quoted(title) if plain else f"CAST({quoted(title)} AS VARCHAR)"


@contextmanager
def _folder() -> Iterator[Path]:
    """Temporary folder for the files that DuckDB reads."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
