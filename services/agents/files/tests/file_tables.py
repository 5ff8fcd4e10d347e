"""Files for tests of queries over files: what a user may upload, and what an attacker would."""

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import xlsxwriter

from bos_files.queries.engine import TableFile

SALES = b"""Region,Amount,Sold on,Note
North,10.50,2025-01-31,"first, of all"
South,3.25,2025-02-01,
North,1,,x
"""


def table_file(name: str, content: bytes, read: list[str] | None = None) -> TableFile:
    """A file of a user; names of files that are read go to ``read``."""

    async def reading() -> bytes:
        if read is not None:
            read.append(name)
        return content

    return TableFile(name, hashlib.sha256(content).hexdigest(), len(content), reading)


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]], hidden: Sequence[str] = ()) -> bytes:
    """An XLSX file; dates get the format of one, and texts that begin with = are formulas."""
    stream = io.BytesIO()
    with xlsxwriter.Workbook(stream) as book:
        day = book.add_format({"num_format": "yyyy-mm-dd"})
        for title, rows in sheets.items():
            sheet = book.add_worksheet(title)
            if title in hidden:
                sheet.hide()
            for at, row in enumerate(rows):
                for place, cell in enumerate(row):
                    if isinstance(cell, datetime):
                        sheet.write_datetime(at, place, cell, day)
                    else:
                        sheet.write(at, place, cell)
    return stream.getvalue()


def parquet(folder: Path, select: str) -> bytes:
    path = folder / "made.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet)")
    return path.read_bytes()


def bomb(mebibytes: int) -> bytes:
    """A workbook whose one sheet unpacks to so much."""
    stream = io.BytesIO()
    original = zipfile.ZipFile(io.BytesIO(workbook({"a": [["x"], [1]]})))
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in original.namelist():
            archive.writestr(name, original.read(name))
        archive.writestr("xl/media/bomb.xml", b"\0" * (mebibytes * 1024 * 1024))
    return stream.getvalue()
