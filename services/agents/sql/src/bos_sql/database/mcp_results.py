"""Lossless decoding of mcp_db's results: cells and tables.

mcp_db defines the format (``bos_mcp_db.values``): JSON, with an object of exactly one key, such
as ``{"$int": "9007199254740993"}``, for values that JSON would change.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from bos.common.v1 import Column, ColumnType, Table
from bos_chassis.values import make_table
from bos_errors import Internal

_COLUMN_TYPES = {
    "bool": ColumnType.COLUMN_TYPE_BOOL,
    "int64": ColumnType.COLUMN_TYPE_INT64,
    "double": ColumnType.COLUMN_TYPE_DOUBLE,
    "decimal": ColumnType.COLUMN_TYPE_DECIMAL,
    "string": ColumnType.COLUMN_TYPE_STRING,
    "bytes": ColumnType.COLUMN_TYPE_BYTES,
    "date": ColumnType.COLUMN_TYPE_DATE,
    "timestamp": ColumnType.COLUMN_TYPE_TIMESTAMP,
    "structured": ColumnType.COLUMN_TYPE_STRUCTURED,
}


def read_cell(wire: Any) -> Any:
    """Decode a cell; a timestamp without time zone is taken as UTC.

    Raises:
        ValueError: an object with an unknown tag.
    """
    if isinstance(wire, list):
        return [read_cell(item) for item in wire]
    if not isinstance(wire, dict):
        return wire
    if len(wire) == 1:
        (tag, content), *_ = wire.items()
        if tag == "$map" and isinstance(content, dict):
            return {key: read_cell(item) for key, item in content.items()}
        if tag in _READERS and isinstance(content, str):
            return _READERS[tag](content)
    raise ValueError(f"not a tagged value: {sorted(wire)}")


def read_table(envelope: Mapping[str, Any]) -> Table:
    """Decode the table in a reply of ``mcp_db_query``.

    Raises:
        Internal: the reply is no success, or its data is no table.
    """
    try:
        if envelope["success"] is not True:
            raise ValueError("the reply does not say success")
        columns = _columns(envelope["columns"], envelope["column_types"])
        rows = [[read_cell(cell) for cell in row] for row in envelope["data"]]
        return make_table(columns, rows, truncated=bool(envelope["truncated"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Internal("The reply of the database service is not a table.") from error


def _columns(names: Sequence[str], types: Sequence[str]) -> list[str | Column]:
    return [
        # Columns without a known type get theirs from the cells.
        Column(name=name, type=_COLUMN_TYPES[kind]) if kind in _COLUMN_TYPES else name
        for name, kind in zip(names, types, strict=True)
    ]


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


_READERS: dict[str, Callable[[str], Any]] = {
    "$int": int,
    "$double": float,
    "$decimal": Decimal,
    "$bytes": lambda text: base64.b64decode(text, validate=True),
    "$date": date.fromisoformat,
    "$timestamp": _moment,
}
