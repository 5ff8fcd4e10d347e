"""Result of a call: its JSON within bounds, rows of lists, a table. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from bos.common.v1 import Table
from bos_chassis.values import make_table

_ROWS_NAMES = ("data", "items", "results", "records", "rows", "value", "values", "content")
_MAX_COLUMNS = 50
_MAX_DEPTH = 16
_MAX_NODES = 30_000
_MAX_TEXT = 20_000
_MAX_KEY = 200
_MAX_CELLS = 50_000
_MAX_SNIPPET = 4_000
_MAX_ERROR_TEXT = 300


class CallResult(BaseModel):
    """Response of an API, as later steps and prompts see it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    status_code: int
    method: str
    url: str
    body: Any = None
    """JSON of the response, within bounds; text where it is none. Empty where ``rows`` hold it."""
    rows: list[dict[str, Any]] | None = None
    """Rows of all pages, if the response is a list."""
    pages: int = 1
    truncated: bool = False
    """Whether the API has further rows."""
    elapsed_ms: float = 0.0
    more: str = ""
    """Missing part, in a sentence for users."""


class Bounded:
    """Copies JSON within bounds on depth, values and lengths."""

    def __init__(self) -> None:
        self.cut = False
        self._left = _MAX_NODES

    def copy(self, value: Any, depth: int = 0) -> Any:
        """``value`` in types that typed values take; anything else is left out."""
        self._left -= 1
        if self._left < 0:
            self.cut = True
            return None
        match value:
            case str():
                return self._text(value, _MAX_TEXT)
            case dict() | list() if depth >= _MAX_DEPTH:
                self.cut = True
                return "…"
            case dict():
                return {
                    self._text(name, _MAX_KEY): self.copy(each, depth + 1)
                    for name, each in self._fitting(value.items())
                }
            case list():
                return [self.copy(each, depth + 1) for each in self._fitting(value)]
            case _:
                return value

    def _fitting(self, items: Any) -> list[Any]:
        listed = list(items)
        if len(listed) > self._left:
            self.cut = True
        return listed[: max(0, self._left)]

    def _text(self, text: str, limit: int) -> str:
        # JSON may hold halves of surrogate pairs, which no message can.
        whole = text.encode("utf-8", "replace").decode()
        if len(whole) <= limit:
            return whole
        self.cut = True
        return f"{whole[:limit]}…"


def parsed(text: str) -> tuple[Any, bool]:
    """JSON of a response and whether it is JSON; numbers with a point are exact decimals."""
    try:
        return json.loads(text, parse_float=_number, parse_constant=lambda _: None), True
    except (ValueError, ArithmeticError, RecursionError):
        return text, False


def _number(text: str) -> Decimal | float:
    number = Decimal(text)
    # A decimal of absurd size is a double or nothing; to_value refuses it.
    return number if -50 < number.adjusted() < 50 else float(number)


def at(value: Any, path: str) -> Any:
    """Part of JSON at a dotted path; None where there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def rows_of(value: Any, path: str = "") -> list[dict[str, Any]] | None:
    """The list of objects that a response is or holds; None if it holds none, or several.

    Args:
        value: JSON of the response.
        path: Where the catalogue says that it is; empty: found by form and usual names.
    """
    if path:
        return _as_rows(at(value, path))
    if isinstance(value, list):
        return _as_rows(value)
    if not isinstance(value, dict):
        return None
    for holder in (value, value.get("_embedded")):
        if not isinstance(holder, dict):
            continue
        for name in _ROWS_NAMES:
            if (rows := _as_rows(holder.get(name))) is not None:
                return rows
    lists = [each for each in value.values() if isinstance(each, list)]
    counts = sum(isinstance(each, str | dict) for each in value.values())
    # One list beside numbers is a page of it; beside texts it is part of one object.
    return _as_rows(lists[0]) if len(lists) == 1 and counts <= 1 else None


def _as_rows(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list):
        return None
    if all(isinstance(each, dict) for each in value):
        return value
    scalars = all(not isinstance(each, dict | list) for each in value)
    return [{"value": each} for each in value] if scalars else None


def bounded_rows(
    rows: Sequence[dict[str, Any]], max_rows: int
) -> tuple[list[dict[str, Any]], bool]:
    """Rows within bounds, and whether anything was left out."""
    bounded = Bounded()
    kept: list[dict[str, Any]] = []
    cells = 0
    for row in rows[:max_rows]:
        cells += len(row)
        if cells > _MAX_CELLS:
            bounded.cut = True
            break
        copied = bounded.copy(row)
        if bounded.cut:
            kept += [copied] if copied else []
            break
        kept.append(copied)
    return kept, bounded.cut or len(rows) > max_rows


def table_of(result: CallResult) -> Table | None:
    """Rows as a table, columns in the order of their first occurrence; None without rows."""
    if result.rows is None:
        return None
    names = list(dict.fromkeys(name for row in result.rows for name in row))
    columns = names[:_MAX_COLUMNS]
    if not columns:
        return None
    cells = [[row.get(name) for name in columns] for row in result.rows]
    truncated = result.truncated or len(names) > len(columns)
    return make_table(columns, cells, truncated=truncated)


def data_of(result: CallResult) -> dict[str, Any]:
    """Data of the step's result. Rows stand in its table, from which references take them."""
    data: dict[str, Any] = {
        "status_code": result.status_code,
        "method": result.method,
        "url": result.url,
        "truncated": result.truncated,
        "pages": result.pages,
        "elapsed_ms": result.elapsed_ms,
    }
    if result.rows is None:
        data["body"] = result.body
    elif not result.rows:
        data |= {"rows": [], "row_count": 0}
    return data


def snippet(result: CallResult) -> str:
    """Beginning of the response for prompts, as JSON."""
    shown = result.body if result.rows is None else result.rows[:50]
    return json.dumps(shown, ensure_ascii=False, default=_plain)[:_MAX_SNIPPET]


def error_text(text: str) -> str:
    """Error text of an API on one line; the usual JSON fields first."""
    value, is_json = parsed(text[:_MAX_TEXT])
    said = ""
    if is_json and isinstance(value, dict):
        for name in ("detail", "message", "title", "error_description", "error", "errors"):
            found = value.get(name)
            if isinstance(found, dict):
                found = found.get("message") or found.get("detail")
            if isinstance(found, str) and found.strip():
                said = found
                break
    said = " ".join((said or text[:_MAX_TEXT]).split())
    said = "".join(char for char in said if char.isprintable())
    return said if len(said) <= _MAX_ERROR_TEXT else f"{said[:_MAX_ERROR_TEXT]}…"


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else str(value)
