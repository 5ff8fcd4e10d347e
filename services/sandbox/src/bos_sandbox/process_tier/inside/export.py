"""Turns what a program computed into plain data, within a budget.

The rules are those of the interpreter tier (``prelude.py``), and more types: scalars, arrays and
tables of numpy and pandas, enums, fractions. A table becomes a list of rows, a series with labels a
map.
"""

from __future__ import annotations

import sys
from collections import deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from .wire import MAX_DEPTH, decimal_size

_LONGEST = 4300
_TOO_LONG = 10**_LONGEST
_VIEWS: Any = (range, type({}.keys()), type({}.values()), type({}.items()))
_AS_TEXT = (time, timedelta, complex)


class NotData(Exception):
    """A value cannot be handed out: ``problem`` is size, digits, depth, keys or type."""

    def __init__(self, problem: str, kind: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.kind = kind


def export(value: Any, budget: int) -> Any:
    """A tree of plain data equal to ``value``; ``budget`` bounds its size in bytes, roughly.

    Raises:
        NotData: There is none.
    """
    return _Export(budget).export(value, 0)


def export_variables(variables: dict[str, Any], budget: int) -> dict[str, Any]:
    """Those of ``variables`` that are data, until the budget is used up."""
    exporter = _Export(budget)
    exported = {}
    for name, value in variables.items():
        try:
            exported[name] = exporter.export(value, 0)
        except NotData as error:
            if error.problem == "size":
                break
        except Exception:  # noqa: S112 - an object of the program may raise anything when looked at
            continue
    return exported


class _Export:
    def __init__(self, budget: int) -> None:
        self._left = budget

    def export(self, value: Any, depth: int) -> Any:
        self._spend(8)
        if _is(value, "enum", "Enum"):
            return self.export(value.value, depth)
        match value:
            case None | bool() | float() if type(value).__module__ == "builtins":
                return value
            case int():
                return self._whole(int(value))
            case Decimal():
                return self._decimal(value)
            case str() | bytes() | bytearray():
                self._spend(len(value))
                return str(value) if isinstance(value, str) else bytes(value)
        foreign = self._foreign(value)
        if foreign is not _NOTHING:
            return None if foreign is None else self.export(foreign, depth)
        match value:
            case datetime():
                return value if value.tzinfo else value.replace(tzinfo=UTC)
            case date():
                return value
            case float():
                return float(value)
        if isinstance(value, _AS_TEXT) or _is(value, "fractions", "Fraction"):
            return str(value)
        if depth > MAX_DEPTH:
            raise NotData("depth")
        return self._nested(value, depth + 1)

    def _nested(self, value: Any, depth: int) -> Any:
        match value:
            case dict():
                return self._map(value, depth)
            case tuple() if hasattr(value, "_asdict"):
                return self._map(value._asdict(), depth)
            case list() | tuple() | deque():
                return [self.export(item, depth) for item in value]
            case set() | frozenset():
                return [self.export(item, depth) for item in self._ordered(value)]
        if isinstance(value, _VIEWS):
            return [self.export(item, depth) for item in value]
        fields = getattr(type(value), "__dataclass_fields__", None)
        if isinstance(fields, dict):
            return self._map({name: getattr(value, name) for name in fields}, depth)
        raise NotData("type", f"<class '{type(value).__name__}'>")

    def _whole(self, value: int) -> int:
        if not -(2**63) <= value < 2**63:
            if not -_TOO_LONG < value < _TOO_LONG:
                raise NotData("digits")
            self._spend(len(str(value)))
        return value

    def _decimal(self, value: Decimal) -> Decimal:
        size = decimal_size(value)
        if size > _LONGEST:
            raise NotData("digits")
        self._spend(size)
        return value

    def _map(self, fields: dict[Any, Any], depth: int) -> dict[str, Any]:
        exported: dict[str, Any] = {}
        for key, value in fields.items():
            name = _key_text(key)
            self._spend(len(name))
            if name in exported:
                raise NotData("keys")
            exported[name] = self.export(value, depth)
        return exported

    def _ordered(self, values: set[Any] | frozenset[Any]) -> list[Any]:
        self._spend(len(values))
        try:
            return sorted(values)
        except TypeError:
            return list(values)

    def _foreign(self, value: Any) -> Any:
        """The Python form of a value of numpy or pandas, or ``_NOTHING`` if it is none."""
        numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
        if numpy is not None:
            if isinstance(value, numpy.generic):
                return _scalar(numpy, value)
            if isinstance(value, numpy.ndarray):
                self._room_for(value.size)
                return value.tolist() if value.dtype.kind not in "mM" else _moments(numpy, value)
        if pandas is None or type(value).__module__.partition(".")[0] != "pandas":
            return _NOTHING
        if value is pandas.NA or value is pandas.NaT:
            return None
        if isinstance(value, pandas.Timestamp):
            return value.to_pydatetime(warn=False)
        if isinstance(value, pandas.DataFrame):
            self._room_for(value.size)
            return _rows(pandas, value)
        if isinstance(value, pandas.Series):
            self._room_for(value.size)
            if isinstance(value.index, pandas.RangeIndex):
                return value.tolist()
            return dict(zip(value.index.tolist(), value.tolist(), strict=True))
        if isinstance(value, pandas.Index | pandas.api.extensions.ExtensionArray):
            self._room_for(len(value))
            return list(value)
        if isinstance(value, pandas.Timedelta | pandas.Period | pandas.Interval):
            return str(value)
        return _NOTHING

    def _room_for(self, cells: int) -> None:
        """Refuse before anything is copied."""
        if cells * 8 > self._left:
            raise NotData("size")

    def _spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise NotData("size")


_NOTHING: Any = object()


def _is(value: Any, module: str, name: str) -> bool:
    """Whether ``value`` is of a type whose module is loaded only if the program asked for it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(value, getattr(loaded, name))


def _key_text(key: Any) -> str:
    if isinstance(key, tuple):
        return ", ".join(_key_text(part) for part in key)
    return str(key)


def _scalar(numpy: Any, value: Any) -> Any:
    if isinstance(value, numpy.datetime64):
        return _moment(value)
    if isinstance(value, numpy.timedelta64):
        return str(value)
    plain = value.item()
    if isinstance(plain, numpy.generic):  # a long double has no form in Python
        return float(plain)
    return plain


def _moments(numpy: Any, values: Any) -> list[Any]:
    return [_moments(numpy, one) if one.shape else _scalar(numpy, one[()]) for one in values]


def _moment(value: Any) -> Any:
    """A numpy time as date or datetime, cut to microseconds; None for "not a time"."""
    plain = value.item()
    if isinstance(plain, int):  # finer than Python's own times
        plain = value.astype("datetime64[us]").item()
    return plain


def _rows(pandas: Any, frame: Any) -> list[dict[Any, Any]]:
    """A table as rows; labels that say something become columns."""
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index()
    names = [_key_text(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise NotData("keys")
    columns = [frame.iloc[:, position].tolist() for position in range(len(names))]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]
