"""Lossless JSON of cells between the process of a query and the service.

Null, booleans, whole numbers, floats that are finite, and text are themselves. Anything else is an
object with one key: ``decimal``, ``double``, ``date``, ``timestamp`` (with its zone, if any),
``bytes``, ``list`` or ``map``. What is none of these comes as text.
"""

from __future__ import annotations

import base64
import math
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

_DEEPEST: Final = 20
"""Lists and maps inside one another; deeper ones are texts."""
# What Python has no type for or reads with a loss is left to DuckDB, which writes it as text.
_NUMBERS: Final = frozenset(
    {
        "tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger",
        "ubigint", "uhugeint", "bignum", "decimal", "double",
    }
)  # fmt: skip
_EXACT: Final = _NUMBERS | {"boolean", "varchar", "blob", "bit", "uuid", "enum", "json", "null"}
_NESTED: Final = frozenset({"list", "array", "struct", "map", "union"})
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_MOMENT: Final = re.compile(r"\d{4}(-\d\d){2} \d\d(:\d\d){2}(\.\d{1,6})?(\+00)?", re.ASCII)


def is_exact(kind: Any) -> bool:
    """Whether Python's value of a type of DuckDB (``DuckDBPyType``) loses nothing."""
    if kind.id in _NESTED:
        parts = (part for _, part in kind.children if not isinstance(part, int))
        return all(is_exact(part) for part in parts)
    return kind.id in _EXACT or str(kind) in ("JSON", "BIGNUM")


def parse(text: str | None, declared: str) -> Any:
    """Return the value of a text that DuckDB wrote; ``infinity`` and year 12345 stay texts."""
    if text is None:
        return None
    if declared == "FLOAT":
        return float(text)
    if declared == "DATE" and _DAY.fullmatch(text):
        return date.fromisoformat(text)
    if declared.startswith("TIMESTAMP") and _MOMENT.fullmatch(text):
        return datetime.fromisoformat(text)
    return text


def encode(value: Any, depth: int = 0) -> Any:
    """Return ``value``, as DuckDB gave it, for the service."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"double": str(value)}
    if isinstance(value, Decimal):
        return {"decimal": format(value, "f")}
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, bytes | bytearray):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return {"list": [encode(each, depth + 1) for each in value]}
    if isinstance(value, dict) and depth < _DEEPEST:
        return {"map": {str(key): encode(each, depth + 1) for key, each in value.items()}}
    return str(value)


def decode(cell: Any) -> Any:
    """Return the value of ``cell``.

    Raises:
        ValueError: it is none that :func:`encode` makes.
    """
    if not isinstance(cell, dict):
        if isinstance(cell, list):
            raise ValueError("a list without its name")
        return cell
    match list(cell.items()):
        case [("decimal", str(text))]:
            return Decimal(text)
        case [("double", str(text))]:
            return float(text)
        case [("date", str(text))]:
            return date.fromisoformat(text)
        case [("timestamp", str(text))]:
            return datetime.fromisoformat(text)
        case [("bytes", str(text))]:
            return base64.b64decode(text, validate=True)
        case [("list", list(cells))]:
            return [decode(each) for each in cells]
        case [("map", dict(fields))]:
            return {key: decode(each) for key, each in fields.items()}
    raise ValueError("an unknown kind of cell")


def size(value: Any) -> int:
    """Return about how many bytes a value takes; for the byte limit."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) + 8
    if isinstance(value, bytes | bytearray):
        return 4 * len(value) // 3 + 8
    if isinstance(value, list | tuple):
        return 16 + sum(size(each) for each in value)
    if isinstance(value, dict):
        return 16 + sum(size(each) for pair in value.items() for each in pair)
    return 24
