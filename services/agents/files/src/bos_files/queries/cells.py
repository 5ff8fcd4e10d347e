"""Lossless JSON of cells between the process of a query and the service.

Null, booleans, whole numbers, floats that are finite, and text are themselves. Anything else is an
object with one key: ``decimal``, ``double``, ``date``, ``timestamp`` (with its zone, if it has one)
or ``list``. What is none of these comes as text.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any


def encode(value: Any) -> Any:
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
    if isinstance(value, list | tuple):
        return {"list": [encode(each) for each in value]}
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
        case [("list", list(cells))]:
            return [decode(each) for each in cells]
    raise ValueError("an unknown kind of cell")


def size(value: Any) -> int:
    """Return about how many bytes a value takes; for the byte limit."""
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace")) + 8
    if isinstance(value, list | tuple):
        return 16 + sum(size(each) for each in value)
    if isinstance(value, dict):
        return 16 + sum(size(each) for pair in value.items() for each in pair)
    return 24
