"""Functions of SQLite that can work for minutes in one call; no clock interrupts them.

``printf`` and ``format`` write a field of any width to the end before they notice that a value has
a limit; ``instr`` and ``replace`` take quadratic time on long texts.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

_WIDE = re.compile(r"(?:^|[^%])(?:%%)*%[^%a-zA-Z]*(?:\d{4}|\*)")
_LONGEST_RESULT = 16 * 1024 * 1024
_LONGEST_PASSED_ON = 20_000

_Cell = str | int | float | bytes | None


@contextmanager
def bounded_functions(connection: sqlite3.Connection) -> Iterator[None]:
    """Replace these functions of ``connection``; SQLite's own do the short work, next door."""
    with closing(sqlite3.connect(":memory:")) as plain:

        def call(name: str, *arguments: _Cell) -> _Cell:
            places = ", ".join("?" * len(arguments))
            cell: _Cell = plain.execute(f"SELECT {name}({places})", arguments).fetchone()[0]
            return cell

        def pass_on(name: str, *arguments: _Cell) -> _Cell:
            if sum(len(a) for a in arguments if isinstance(a, str | bytes)) > _LONGEST_PASSED_ON:
                raise ValueError("an argument is too long")
            return call(name, *arguments)

        def printf(*arguments: _Cell) -> _Cell:
            if arguments and isinstance(arguments[0], str) and _WIDE.search(arguments[0]):
                raise ValueError("a field of a format is too wide")
            return call("printf", *arguments)

        def instr(text: _Cell, part: _Cell) -> _Cell:
            if isinstance(text, str) and isinstance(part, str):
                return text.find(part) + 1
            return pass_on("instr", text, part)

        def replace(text: _Cell, old: _Cell, new: _Cell) -> _Cell:
            if not (isinstance(text, str) and isinstance(old, str) and isinstance(new, str)):
                return pass_on("replace", text, old, new)
            if not old:
                return text
            if len(text) + text.count(old) * (len(new) - len(old)) > _LONGEST_RESULT:
                raise ValueError("the result is too long")
            return text.replace(old, new)

        connection.create_function("printf", -1, printf, deterministic=True)
        connection.create_function("format", -1, printf, deterministic=True)
        connection.create_function("instr", 2, instr, deterministic=True)
        connection.create_function("replace", 3, replace, deterministic=True)
        yield
