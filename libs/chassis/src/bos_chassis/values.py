"""Python values to typed protobuf values and back, without losing digits, types or time zones.

===========================  =================  ==========================================
Python                       ``Value``          back
===========================  =================  ==========================================
None                         null_value         None
bool                         bool_value         bool
int within 64 bits           int64_value        int
int beyond 64 bits           decimal_value      Decimal, equal to the int
float                        double_value       float
Decimal                      decimal_value      Decimal, with its trailing zeros
str                          string_value       str
bytes, bytearray             bytes_value        bytes
date                         date_value         date
datetime with a time zone    timestamp_value    datetime in UTC
list, tuple                  list_value         list
Mapping with text keys       map_value          dict, sorted by key: protobuf maps have no order
===========================  =================  ==========================================
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from google.protobuf import timestamp_pb2
from google.type import date_pb2  # type: ignore[import-untyped]

from bos.common.v1 import Column, ColumnType, Row, Table, Value, ValueList, ValueMap

MAX_DEPTH = 24
"""Lists and maps inside one another. Protobuf readers give up at 100 messages; a level costs 3."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
# Plain notation writes every zero of 1E+1000000 out, so exponents are bounded where PostgreSQL's
# own numeric type ends.
_MAX_DECIMAL_DIGITS = 131_072
# A double is exact to 15 significant digits; what follows is noise such as 0.30000000000000004.
_DOUBLE_DIGITS = 15

_COLUMN_TYPES: dict[str | None, ColumnType] = {
    "bool_value": ColumnType.COLUMN_TYPE_BOOL,
    "int64_value": ColumnType.COLUMN_TYPE_INT64,
    "double_value": ColumnType.COLUMN_TYPE_DOUBLE,
    "decimal_value": ColumnType.COLUMN_TYPE_DECIMAL,
    "string_value": ColumnType.COLUMN_TYPE_STRING,
    "bytes_value": ColumnType.COLUMN_TYPE_BYTES,
    "date_value": ColumnType.COLUMN_TYPE_DATE,
    "timestamp_value": ColumnType.COLUMN_TYPE_TIMESTAMP,
    "list_value": ColumnType.COLUMN_TYPE_STRUCTURED,
    "map_value": ColumnType.COLUMN_TYPE_STRUCTURED,
}
# Columns that hold several kinds of numbers are declared as the kind that can express them all.
_MIXED_COLUMN_TYPES = {
    frozenset({ColumnType.COLUMN_TYPE_INT64, ColumnType.COLUMN_TYPE_DECIMAL}): (
        ColumnType.COLUMN_TYPE_DECIMAL
    ),
    frozenset({ColumnType.COLUMN_TYPE_INT64, ColumnType.COLUMN_TYPE_DOUBLE}): (
        ColumnType.COLUMN_TYPE_DOUBLE
    ),
}


def to_value(value: Any) -> Value:
    """The typed form of ``value`` (table above).

    Raises:
        TypeError: the type has no typed form, or a map has a key that is not text.
        ValueError: a datetime without a time zone, nesting beyond ``MAX_DEPTH``, a decimal with an
            absurd exponent.
    """
    return _to_value(value, 0)


def from_value(value: Value) -> Any:
    """The Python form of ``value``; an unset value is None."""
    match value.WhichOneof("kind"):
        case None | "null_value":
            return None
        case "decimal_value":
            return Decimal(value.decimal_value)
        case "date_value":
            day = value.date_value
            return date(day.year, day.month, day.day)
        case "timestamp_value":
            return value.timestamp_value.ToDatetime(tzinfo=UTC)
        case "list_value":
            return [from_value(item) for item in value.list_value.values]
        case "map_value":
            return from_value_map(value.map_value)
        case kind:
            return getattr(value, kind)


def to_value_map(fields: Mapping[str, Any]) -> ValueMap:
    """The typed form of a map; raises what :func:`to_value` raises."""
    return _to_value_map(fields, 0)


def from_value_map(fields: ValueMap) -> dict[str, Any]:
    """The Python form of a typed map, sorted by key so that texts made from it never vary."""
    return {name: from_value(fields.fields[name]) for name in sorted(fields.fields)}


def make_table(
    columns: Sequence[str | Column], rows: Iterable[Sequence[Any]], truncated: bool = False
) -> Table:
    """A table of Python rows; the type of a column given by name alone comes from its cells.

    Args:
        columns: Names or declared columns; names must differ (:func:`unique_names` helps).
        rows: One cell per column, in column order.
        truncated: Whether the source had more than these rows or columns.

    Raises:
        ValueError: a name occurs twice, or a row has another number of cells than columns.
    """
    names = [column if isinstance(column, str) else column.name for column in columns]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"column names must differ; repeated: {', '.join(repeated)}")
    typed_rows = [_row(index, row, len(names)) for index, row in enumerate(rows)]
    typed_columns = [
        Column(name=column, type=_infer_type(index, typed_rows))
        if isinstance(column, str)
        else column
        for index, column in enumerate(columns)
    ]
    return Table(
        columns=typed_columns, rows=typed_rows, row_count=len(typed_rows), truncated=truncated
    )


def unique_names(names: Iterable[str]) -> list[str]:
    """``names`` with ``_2``, ``_3``, … appended to the ones that repeat; empty ones get a name."""
    taken: set[str] = set()
    result = []
    for position, name in enumerate(names, start=1):
        stem = candidate = name or f"column_{position}"
        suffix = 1
        while candidate in taken:
            suffix += 1
            candidate = f"{stem}_{suffix}"
        taken.add(candidate)
        result.append(candidate)
    return result


def table_rows(table: Table) -> list[dict[str, Any]]:
    """The rows of ``table`` as maps from column name to Python value, in column order."""
    names = [column.name for column in table.columns]
    return [
        {name: from_value(cell) for name, cell in zip(names, row.values, strict=True)}
        for row in table.rows
    ]


def value_to_json(value: Value) -> Any:
    """``value`` as JSON can hold it, exactly: decimals and times become text, bytes base64.

    Doubles that JSON has no number for become ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    match value.WhichOneof("kind"):
        case "double_value" if not math.isfinite(value.double_value):
            return _non_finite(value.double_value)
        case "decimal_value":
            return value.decimal_value
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "date_value" | "timestamp_value":
            return _scalar_text(value)
        case "list_value":
            return [value_to_json(item) for item in value.list_value.values]
        case "map_value":
            fields = value.map_value.fields
            return {name: value_to_json(fields[name]) for name in sorted(fields)}
        case _:
            return from_value(value)


def render_value(value: Value) -> str:
    """``value`` as plain text, for prompts and for embedding in a sentence.

    Numbers carry no exponent and no rounding noise, a flat list is joined by commas, anything
    nested reads like JSON with its numbers written out.
    """
    match value.WhichOneof("kind"):
        case "list_value" if not any(_is_nested(item) for item in value.list_value.values):
            return ", ".join(_scalar_text(item) for item in value.list_value.values)
        case "list_value" | "map_value":
            return _literal(value)
        case _:
            return _scalar_text(value)


def _to_value(value: Any, depth: int) -> Value:
    # bool before int and datetime before date: each is a subclass of the latter.
    if value is None:
        return Value(null_value="NULL_VALUE")
    if isinstance(value, bool):
        return Value(bool_value=value)
    if isinstance(value, int):
        if _INT64_MIN <= value <= _INT64_MAX:
            return Value(int64_value=value)
        return Value(decimal_value=str(int(value)))
    if isinstance(value, float):
        return Value(double_value=value)
    if isinstance(value, str):
        return Value(string_value=value)
    if isinstance(value, Decimal):
        return Value(decimal_value=_plain(value))
    if isinstance(value, datetime):
        return Value(timestamp_value=_timestamp(value))
    if isinstance(value, date):
        return Value(date_value=date_pb2.Date(year=value.year, month=value.month, day=value.day))
    if isinstance(value, bytes | bytearray):
        return Value(bytes_value=bytes(value))
    return _to_nested(value, depth + 1)


def _to_nested(value: Any, depth: int) -> Value:
    if depth > MAX_DEPTH:
        raise ValueError(f"lists and maps are nested more than {MAX_DEPTH} deep")
    if isinstance(value, list | tuple):
        return Value(list_value=ValueList(values=[_to_value(item, depth) for item in value]))
    if isinstance(value, Mapping):
        return Value(map_value=_to_value_map(value, depth))
    raise TypeError(f"{type(value).__name__} has no typed form; convert it first")


def _to_value_map(fields: Mapping[str, Any], depth: int) -> ValueMap:
    for name in fields:
        if not isinstance(name, str):
            raise TypeError(f"map keys must be text, not {type(name).__name__}")
    return ValueMap(fields={name: _to_value(item, depth) for name, item in fields.items()})


def _plain(number: Decimal) -> str:
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and max(abs(number.adjusted()), -exponent) > _MAX_DECIMAL_DIGITS:
        raise ValueError(f"a decimal has more than {_MAX_DECIMAL_DIGITS} digits")
    return format(number, "f")


def _timestamp(moment: datetime) -> timestamp_pb2.Timestamp:
    if moment.tzinfo is None:
        raise ValueError("a datetime needs a time zone; use datetime.now(UTC) or attach one")
    stamp = timestamp_pb2.Timestamp()
    stamp.FromDatetime(moment)
    return stamp


def _row(index: int, row: Sequence[Any], width: int) -> Row:
    if len(row) != width:
        raise ValueError(f"row {index} has {len(row)} cells where there are {width} columns")
    return Row(values=[to_value(cell) for cell in row])


def _infer_type(index: int, rows: Sequence[Row]) -> ColumnType:
    kinds = {row.values[index].WhichOneof("kind") for row in rows}
    types = frozenset(_COLUMN_TYPES[kind] for kind in kinds - {None, "null_value"})
    if len(types) == 1:
        return next(iter(types))
    return _MIXED_COLUMN_TYPES.get(types, ColumnType.COLUMN_TYPE_UNSPECIFIED)


def _is_nested(value: Value) -> bool:
    return value.WhichOneof("kind") in {"list_value", "map_value"}


def _scalar_text(value: Value) -> str:
    match value.WhichOneof("kind"):
        case None | "null_value":
            return "null"
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "double_value":
            return _double_text(value.double_value)
        case "bytes_value":
            return f"({len(value.bytes_value)} bytes)"
        case "date_value":
            return str(from_value(value).isoformat())
        case "timestamp_value":
            return str(from_value(value).isoformat()).replace("+00:00", "Z")
        case kind:
            return str(getattr(value, kind))


def _literal(value: Value) -> str:
    match value.WhichOneof("kind"):
        case "string_value":
            return json.dumps(value.string_value, ensure_ascii=False)
        case "date_value" | "timestamp_value":
            return f'"{_scalar_text(value)}"'
        case "list_value":
            return "[" + ", ".join(_literal(item) for item in value.list_value.values) + "]"
        case "map_value":
            fields = value.map_value.fields
            items = (
                f"{json.dumps(k, ensure_ascii=False)}: {_literal(fields[k])}"
                for k in sorted(fields)
            )
            return "{" + ", ".join(items) + "}"
        case _:
            return _scalar_text(value)


def _double_text(number: float) -> str:
    if not math.isfinite(number):
        return _non_finite(number)
    if number == 0:
        return "0"
    rounded = Decimal(format(number, f".{_DOUBLE_DIGITS}g"))
    return format(rounded, "f") if -7 <= rounded.adjusted() <= 21 else str(rounded.normalize())


def _non_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"
