"""The wire format of cells: JSON that loses nothing. This module is its definition.

JSON has one kind of number and no dates, so a value that plain JSON would change is *tagged*: an
object with exactly one key, which starts with ``$``.

=====================================  ===========================================  ==============
Value                                  On the wire                                  bos ``Value``
=====================================  ===========================================  ==============
NULL                                   ``null``                                     null
boolean                                ``true`` / ``false``                         bool
whole number, at most 2**53 - 1        ``42`` (no fraction, no exponent)            int64
whole number beyond that               ``{"$int": "9007199254740993"}``             int64, decimal
binary float                           ``1.5``, ``2.0`` (a fraction or exponent)    double
NaN and the infinities                 ``{"$double": "NaN" | "Infinity" | …}``      double
exact decimal                          ``{"$decimal": "1.10"}`` (plain notation)    decimal
text, and every type not listed        ``"text"``                                   string
bytes                                  ``{"$bytes": "<base64>"}``                   bytes
date                                   ``{"$date": "2025-01-31"}``                  date
timestamp with time zone, in UTC       ``{"$timestamp": "2025-01-31T10:00:00Z"}``   timestamp
timestamp without time zone            ``{"$timestamp": "2025-01-31T10:00:00"}``    timestamp (UTC)
array                                  ``[…]``                                      list
JSON object                            ``{"$map": {"key": …}}``                     map
=====================================  ===========================================  ==============

An untagged object never occurs. Fractions of a second have up to six digits. Dates and
timestamps that Python has not (``infinity``, before year 1, after 9999) are text, as the database
shows them. A reader that meets an unknown tag must fail rather than guess.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_LARGEST_JSON_INT = 2**53 - 1


def encode(value: Any) -> Any:
    """Return ``value``, as a database driver gave it, in the wire format."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_JSON_INT else {"$int": str(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$double": _non_finite(value)}
    if isinstance(value, Decimal):
        return _encode_decimal(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, datetime):
        return {"$timestamp": _timestamp(value)}
    if isinstance(value, date):
        return {"$date": value.isoformat()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {"$map": {str(key): encode(item) for key, item in value.items()}}
    return str(value)


def decode(wire: Any) -> Any:
    """Return the Python value of ``wire``: the inverse of :func:`encode`, and its specification.

    Raises:
        ValueError: an object that is not exactly one known tag.
    """
    if isinstance(wire, list):
        return [decode(item) for item in wire]
    if not isinstance(wire, dict):
        return wire
    match list(wire.items()):
        case [("$int", str(text))]:
            return int(text)
        case [("$double", str(text))]:
            return float(text)
        case [("$decimal", str(text))]:
            return Decimal(text)
        case [("$bytes", str(text))]:
            return base64.b64decode(text, validate=True)
        case [("$date", str(text))]:
            return date.fromisoformat(text)
        case [("$timestamp", str(text))]:
            return datetime.fromisoformat(text)
        case [("$map", dict(fields))]:
            return {key: decode(item) for key, item in fields.items()}
    raise ValueError(f"not a tagged value: {sorted(wire)}")


def size(value: Any) -> int:
    """Return about how many bytes ``value`` takes on the wire; for the byte limit."""
    if isinstance(value, str | bytes | bytearray):
        return len(value) + 8
    if isinstance(value, list | tuple):
        return 2 + sum(size(item) for item in value)
    if isinstance(value, Mapping):
        return 12 + sum(len(str(key)) + 4 + size(item) for key, item in value.items())
    return 24


def _encode_decimal(value: Decimal) -> Any:
    if value.is_nan():
        return {"$double": "NaN"}
    if value.is_infinite():
        return {"$double": _non_finite(float(value))}
    return {"$decimal": format(value, "f")}


def _non_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _timestamp(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
