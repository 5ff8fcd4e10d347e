"""Cells of SQLite: every storage class, and texts that are no UTF-8; none of them costs a query."""

import json
import math
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.sqlite import SqliteBackend
from bos_mcp_db.values import decode, encode
from bos_sqlguard import load_functions

LIMITS = Limits(max_rows=50, max_columns=20, max_bytes=1_000_000, timeout_s=10)

# Values as SQL, and their cells.
CELLS: list[tuple[str, Any]] = [
    ("NULL", None),
    ("9223372036854775807", 2**63 - 1),
    ("-9223372036854775808", -(2**63)),
    ("9223372036854775808", 9223372036854775808.0),
    ("1.1", 1.1),
    ("9e999", math.inf),
    ("-9e999", -math.inf),
    ("9e999 - 9e999", None),
    ("'é山👍'", "é山👍"),
    ("''", ""),
    ("x'deadbeef'", b"\xde\xad\xbe\xef"),
    ("x''", b""),
    ("CAST(x'61ff62' AS TEXT)", "a\ufffdb"),
    ("CAST(x'eda080' AS TEXT)", "\ufffd\ufffd\ufffd"),
    ("'a' || char(0) || 'b'", "a\0b"),
    ("'0044-03-15 BC'", "0044-03-15 BC"),
    ("'12345-01-01'", "12345-01-01"),
    ("'0000-00-00'", "0000-00-00"),
    ("date('2026-02-28', '+1 year')", "2027-02-28"),
    ("true", 1),
    ("'{\"a\": [1, null]}'", '{"a": [1, null]}'),
]


async def test_cells_of_every_kind(tmp_path: Path) -> None:
    path = tmp_path / "odd.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE odd (id INTEGER PRIMARY KEY, value)")
        for value, _ in CELLS:
            connection.execute(f"INSERT INTO odd (value) VALUES ({value})")
        connection.commit()
    functions = load_functions("sqlite").scalar
    async with aclosing(SqliteBackend(path, tables=["odd"], functions=functions, threads=1)) as own:
        found = await own.query("SELECT value FROM odd ORDER BY id", LIMITS)
    cells = [row[0] for row in found.rows]
    assert cells == [cell for _, cell in CELLS]
    wire = json.loads(json.dumps([encode(cell) for cell in cells]).encode())
    assert [decode(each) for each in wire] == cells
