"""Limits of the process that answers one query over files."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one query, and of reading the files it is about.

    Attributes:
        max_rows: rows of a result; one more is fetched to see whether there are any.
        max_columns: columns of a result.
        max_bytes: bytes of a result.
        timeout_s: time for reading the files and for the query together.
        memory_mib: memory that the engine may use; the process may have a gigabyte more.
        threads: threads of the engine.
        max_files: files that become tables, the first ones by name.
        max_file_bytes: bytes of one file.
        max_query_bytes: bytes of all files that one query reads.
        max_unpacked_bytes: bytes that the parts of a workbook unpack to.
        max_row_bytes: bytes of one row of a CSV file.
        max_file_columns: columns of a table.
        max_file_rows: rows of a table.
        max_sheets: sheets of a workbook that become tables.
    """

    max_rows: int = 200
    max_columns: int = 50
    max_bytes: int = 1_000_000
    timeout_s: float = 30.0
    memory_mib: int = 512
    threads: int = 2
    max_files: int = 200
    max_file_bytes: int = 20 * _MIB
    max_query_bytes: int = 60 * _MIB
    max_unpacked_bytes: int = 256 * _MIB
    max_row_bytes: int = _MIB
    max_file_columns: int = 1_000
    max_file_rows: int = 2_000_000
    max_sheets: int = 50
