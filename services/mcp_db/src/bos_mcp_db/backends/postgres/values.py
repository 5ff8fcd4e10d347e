"""Values of PostgreSQL as Python values, or as the text that PostgreSQL itself shows.

What Python's types cannot hold (``infinity``, years before 1 and after 9999, ``24:00``) and types
without one of their own (ranges, bits, geometry) are texts. The formats are those of PostgreSQL's
output functions under ``DateStyle = ISO`` and ``IntervalStyle = postgres``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import asyncpg

from bos_mcp_db.backends.rows import clock

_EPOCH: Final = date(2000, 1, 1).toordinal()
_START: Final = datetime(2000, 1, 1)  # noqa: DTZ001  of timestamps without time zone
_DAY_US: Final = 86_400_000_000
_FIRST, _LAST = date.min.toordinal(), date.max.toordinal()
_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_QUOTED_IN_RANGES: Final = frozenset('"\\()[], \t\n\r\v\f')


async def set_codecs(connection: asyncpg.Connection[Any]) -> None:
    """Let a connection read values by the functions of this module.

    Formats are binary: values in arrays, ranges and composite types are read like any other.
    """
    codecs: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("json", "binary", _json),
        ("jsonb", "binary", lambda data: _json(data[1:])),  # behind the number of its version
        ("float4", "binary", _float4),
        ("date", "tuple", lambda parts: day(parts[0])),
        ("timestamp", "tuple", lambda parts: moment(parts[0])),
        ("timestamptz", "tuple", lambda parts: moment(parts[0], has_zone=True)),
        ("time", "tuple", lambda parts: time_of_day(parts[0])),
        ("timetz", "tuple", lambda parts: time_of_day(parts[0]) + zone(parts[1])),
        ("pg_lsn", "binary", lambda data: "{:X}/{:X}".format(*struct.unpack("!II", data))),
        ("interval", "tuple", lambda parts: interval(*parts)),
    )
    for name, form, decode in codecs:
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=lambda value: value, decoder=decode, format=form
        )


def cell(value: Any, kind: str = "scalar") -> Any:
    """A value as the driver gives it, as a cell of a result.

    Args:
        value: The driver's.
        kind: The driver's word for the kind of the column's type.
    """
    if isinstance(value, asyncpg.Record):
        return {key: cell(item) for key, item in value.items()}
    if isinstance(value, list):
        if kind == "multirange":
            return "{" + ",".join(cell(item) for item in value) + "}"
        return [cell(item) for item in value]
    if isinstance(value, asyncpg.Range):
        return _range(value)
    if isinstance(value, asyncpg.BitString):
        return value.as_string().replace(" ", "")
    if type(value) is tuple:  # a row without names, or a tid
        return f"({','.join('' if item is None else str(cell(item)) for item in value)})"
    if isinstance(value, tuple | asyncpg.Path):
        return _geometry(value)
    return value


def day(days: int) -> date | str:
    """A ``date``, from days since 2000-01-01."""
    if abs(days) >= _INT32:
        return "infinity" if days > 0 else "-infinity"
    ordinal = days + _EPOCH
    return date.fromordinal(ordinal) if _FIRST <= ordinal <= _LAST else _far_day(ordinal)


def moment(microseconds: int, *, has_zone: bool = False) -> datetime | str:
    """A ``timestamp`` or ``timestamptz``, from microseconds since 2000-01-01 (UTC)."""
    if abs(microseconds) >= _INT64:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, _DAY_US)
    if _FIRST <= days + _EPOCH <= _LAST:
        found = _START + timedelta(microseconds=microseconds)
        return found.replace(tzinfo=UTC) if has_zone else found
    year_and_day, _, era = _far_day(days + _EPOCH).partition(" ")
    return " ".join(filter(None, [year_and_day, time_of_day(rest) + "+00" * has_zone, era]))


def time_of_day(microseconds: int) -> str:
    """A ``time``, from microseconds since midnight; ``24:00:00`` is one."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    text = clock(seconds)
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def zone(seconds_west: int) -> str:
    """The offset of a ``timetz``, such as ``+02`` or ``-03:30``."""
    east = -seconds_west
    parts = [abs(east) // 3600, abs(east) // 60 % 60, abs(east) % 60]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return ("-" if east < 0 else "+") + ":".join(f"{part:02}" for part in parts)


def interval(months: int, days: int, microseconds: int) -> str:
    """An ``interval`` in PostgreSQL's words, such as ``1 year 2 mons -3 days +04:05:06``."""
    if abs(months) >= _INT32 and abs(days) >= _INT32:
        return "infinity" if months > 0 else "-infinity"
    years, left = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    texts: list[str] = []
    is_before = False
    for count, unit in ((sign * years, "year"), (sign * left, "mon"), (days, "day")):
        if count:
            plus = "+" if is_before and count > 0 else ""
            texts.append(f"{plus}{count} {unit}{'' if count == 1 else 's'}")
            is_before = count < 0
    if microseconds or not texts:
        plus = "-" if microseconds < 0 else "+" if is_before else ""
        texts.append(plus + time_of_day(abs(microseconds)))
    return " ".join(texts)


def _far_day(ordinal: int) -> str:
    """A day that Python's ``date`` has not, by shifting it into a year of the same calendar."""
    cycles, within = divmod(ordinal - 1, 146_097)  # days of 400 years, which all are alike
    found = date.fromordinal(within + 1)
    year = found.year + 400 * cycles
    text = f"{found.month:02}-{found.day:02}"
    return f"{year:04}-{text}" if year > 0 else f"{1 - year:04}-{text} BC"


def _json(data: bytes) -> Any:
    value = json.loads(data, parse_float=Decimal)
    return _valid(value) if b"\\u" in data else value


def _valid(value: Any) -> Any:
    """JSON without halves of surrogate pairs, which no UTF-8 has."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_valid(item) for item in value]
    if isinstance(value, dict):
        return {_valid(key): _valid(item) for key, item in value.items()}
    return value


def _float4(data: bytes) -> float:
    """The shortest decimal that is the same ``real``: 1.1, and not 1.100000023841858."""
    (value,) = struct.unpack("!f", data)
    for digits in range(6, 9):
        short = float(f"{value:.{digits}g}")
        try:
            if struct.pack("!f", short) == data:
                return short
        except OverflowError:
            continue
    return float(f"{value:.9g}")


def _range(value: asyncpg.Range[Any]) -> str:
    if value.isempty:
        return "empty"
    lower, upper = ("" if each is None else _bound(each) for each in (value.lower, value.upper))
    return f"{'[' if value.lower_inc else '('}{lower},{upper}{']' if value.upper_inc else ')'}"


def _bound(value: Any) -> str:
    if isinstance(value, datetime):
        text = (
            f"{value.date()} {time_of_day(_since_midnight(value))}{'+00' if value.tzinfo else ''}"
        )
    else:
        text = str(value)
    if text and not _QUOTED_IN_RANGES & set(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'


def _since_midnight(value: datetime) -> int:
    at: time = value.time()
    return (at.hour * 3600 + at.minute * 60 + at.second) * 1_000_000 + at.microsecond


def _geometry(value: Any) -> str:
    """Points and what consists of them; most of the driver's classes are tuples."""
    match value:
        case float(x), float(y):
            return f"({_number(x)},{_number(y)})"
        case asyncpg.Line():
            return "{" + ",".join(map(_number, value)) + "}"
        case asyncpg.Circle():
            return f"<{_geometry(value.center)},{_number(value.radius)}>"
        case asyncpg.Box():
            return f"{_geometry(value.high)},{_geometry(value.low)}"
        case asyncpg.LineSegment():
            return f"[{_geometry(value.p1)},{_geometry(value.p2)}]"
        case asyncpg.Path():
            points = ",".join(map(_geometry, value.points))
            return f"({points})" if value.is_closed else f"[{points}]"
    return f"({','.join(map(_geometry, value))})"


def _number(value: float) -> str:
    """A double as PostgreSQL writes it."""
    text = repr(value).removesuffix(".0")
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(text, text)
