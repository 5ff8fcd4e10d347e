"""Values and messages between the service and an isolated interpreter.

A message is a length (four bytes, big-endian) and that many bytes of JSON. JSON's own values stand
for themselves; everything else is an object with one key that says what it is. The service reads
this from an interpreter that a hostile program may control: decoding builds plain data and nothing
else.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime
from decimal import Decimal
from typing import Any

MAX_DEPTH = 20
"""Lists and maps inside one another in a result."""

_INT64 = 2**63


def encode(value: Any) -> Any:
    """``value``, a tree of plain data, as JSON can hold it.

    Raises:
        TypeError: ``value`` holds something that is not plain data.
    """
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return value if -_INT64 <= value < _INT64 else {"int": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case datetime():
            return {"time": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case list() | tuple():
            return [encode(item) for item in value]
        case dict():
            return {"map": {name: encode(item) for name, item in value.items()}}
    raise TypeError(type(value).__name__)


def decode(value: Any) -> Any:
    """The inverse of :func:`encode`.

    Raises:
        ValueError: ``value`` was not made by :func:`encode`.
        ArithmeticError: It holds a decimal that does not exist.
        RecursionError: It is nested without end.
    """
    match value:
        case None | bool() | str() | float() | int():
            return value
        case list():
            return [decode(item) for item in value]
        case {"int": str(digits)}:
            return int(digits)
        case {"decimal": str(digits)}:
            return Decimal(digits)
        case {"bytes": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"time": str(text)}:
            return datetime.fromisoformat(text)
        case {"date": str(text)}:
            return date.fromisoformat(text)
        case {"map": dict(fields)}:
            return {name: decode(item) for name, item in fields.items()}
    raise ValueError("not a value of this wire")


def decimal_size(value: Decimal) -> int:
    """How many digits ``value`` has written out in full, which 1E+131000 only seems to save."""
    return len(value.as_tuple().digits) + abs(value.adjusted()) if value.is_finite() else 1


def pack(message: dict[str, Any]) -> bytes:
    """``message`` as bytes; lone surrogates survive as escapes."""
    data = json.dumps(message, separators=(",", ":")).encode("ascii")
    return len(data).to_bytes(4, "big") + data


def unpack(data: bytes) -> dict[str, Any] | None:
    """The message in ``data`` (without its length), or None if there is none."""
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


READY = pack({"ready": True})
"""The first message of an isolated interpreter."""
