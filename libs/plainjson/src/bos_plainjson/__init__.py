"""Plain JSON of messages, as REST writes it (docs/reference/plain-json.md).

Fields are as protobuf's own JSON has them; typed values are the JSON that they stand for.
"""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any, Literal

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.message import Message

    from bos.common.v1 import Row, Table, Value

Rows = Literal["arrays", "objects"]
_INT64_KINDS = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_SFIXED64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_FIXED64,
    }
)


def plain_json(message: Message, rows: Rows = "arrays") -> Any:
    """``message`` as what ``json.dumps`` takes.

    Args:
        message: Any message; most become a dict.
        rows: Whether rows of tables are arrays, or objects by the names of their columns.

    Raises:
        ValueError: it holds a time or duration that JSON cannot express.
    """
    return _message(message, rows)


def row_keys(table: Table) -> list[str]:
    """Keys of the cells of a row: the columns' names; repeated and empty ones become unique."""
    names = [column.name for column in table.columns]
    names += [""] * (max((len(row.values) for row in table.rows), default=0) - len(names))
    keys: dict[str, None] = {}
    for position, name in enumerate(names, start=1):
        stem = key = name or f"column_{position}"
        number = 1
        while key in keys:
            number += 1
            key = f"{stem}_{number}"
        keys[key] = None
    return list(keys)


def _message(message: Any, rows: Rows) -> Any:
    name = message.DESCRIPTOR.full_name
    if typed := _TYPED.get(name):
        return typed(message)
    if name.startswith("google.protobuf."):
        return MessageToDict(message)
    content = {
        field.name: _field(message, field, rows)
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }
    if name == "bos.common.v1.Table" and rows == "objects":
        keys = row_keys(message)
        content["rows"] = [dict(zip(keys, _row(row), strict=False)) for row in message.rows]
    return content


def _field(message: Message, field: FieldDescriptor, rows: Rows) -> Any:
    value = getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {_key(key): _single(value[key], inner, rows) for key in sorted(value)}
    if field.is_repeated:
        return [_single(item, field, rows) for item in value]
    return _single(value, field, rows)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _single(value: Any, field: FieldDescriptor, rows: Rows) -> Any:
    if field.message_type is not None:
        return _message(value, rows)
    if field.enum_type is not None:
        if field.enum_type.full_name == "google.protobuf.NullValue":
            return None
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    if field.type in _INT64_KINDS:
        return str(value)
    if isinstance(value, float):
        return _number(value)
    return _bytes(value) if isinstance(value, bytes) else value


def _value(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    return None if kind is None else _VALUES[kind](getattr(value, kind))


def _row(row: Row) -> list[Any]:
    return _values(row.values)


def _values(values: Sequence[Value]) -> list[Any]:
    return [_value(value) for value in values]


def _map(fields: Mapping[str, Value]) -> dict[str, Any]:
    return {name: _value(fields[name]) for name in sorted(fields)}


def _number(number: float) -> float | str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _bytes(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _as_it_is(value: Any) -> Any:
    return value


_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "null_value": lambda _: None,
    "bool_value": _as_it_is,
    "int64_value": str,
    "double_value": _number,
    "decimal_value": _as_it_is,
    "string_value": _as_it_is,
    "bytes_value": _bytes,
    "date_value": lambda day: f"{day.year:04}-{day.month:02}-{day.day:02}",
    "timestamp_value": lambda time: time.ToJsonString(),
    "list_value": lambda items: _values(items.values),
    "map_value": lambda fields: _map(fields.fields),
}
_TYPED: Mapping[str, Callable[[Any], Any]] = {
    "bos.common.v1.Value": _value,
    "bos.common.v1.ValueList": lambda items: _values(items.values),
    "bos.common.v1.ValueMap": lambda fields: _map(fields.fields),
    "bos.common.v1.Row": _row,
}
