"""``printf`` and ``format`` of SQLite, within bounds.

A field of a thousand million characters fills no memory, since values have a limit, but SQLite
writes it to the end before it notices, for seconds, and no clock interrupts it.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = ("printf", "format")
_WIDE = re.compile(r"(?:^|[^%])(?:%%)*%[^%a-zA-Z]*(?:\d{4}|\*)")

_Cell = str | int | float | bytes | None


@contextmanager
def bounded_formats(connection: sqlite3.Connection) -> Iterator[None]:
    """Replace both functions of ``connection``; SQLite's own still do the work, next door."""
    with closing(sqlite3.connect(":memory:")) as plain:

        def bounded(*arguments: _Cell) -> _Cell:
            if arguments and isinstance(arguments[0], str) and _WIDE.search(arguments[0]):
                raise ValueError("a field of a format is too wide")
            places = ", ".join("?" * len(arguments))
            cell: _Cell = plain.execute(f"SELECT printf({places})", arguments).fetchone()[0]
            return cell

        for name in _NAMES:
            connection.create_function(name, -1, bounded, deterministic=True)
        yield
