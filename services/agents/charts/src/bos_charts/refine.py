"""Choices of plans and models checked against the table: only its columns, only what can be drawn.

Pure. Invalid parts are dropped; the rules choose in their place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast, get_args

from bos_charts.choice import Choice, Mark, Order, feasible
from bos_charts.columns import Kind
from bos_charts.replies import ChartChoice
from bos_charts.tables import Table

MAX_TITLE_CHARS = 100
_ADDRESS = re.compile(r"://|www\.|@\w+\.", re.IGNORECASE)
_MARKS, _ORDERS = get_args(Mark), get_args(Order)
_SYNONYMS = {"pie": "arc", "donut": "arc", "column": "bar", "scatter": "point", "bars": "bar"}


def refined(choice: Choice, table: Table, reply: ChartChoice) -> tuple[Choice, str]:
    """The model's choice, or that of the rules with the reason why the model's was not used."""
    given = reply.model_dump() | {"title": ""}
    found, why = _applied(choice, table, given)
    title = fit_title(reply.title)
    return replace(found, title=title or found.title), why


def planned(choice: Choice, table: Table, arguments: Mapping[str, Any]) -> tuple[Choice, str]:
    """Apply mark, x, y, series, order, stacked and title of the plan's input to the choice."""
    given = {key: arguments[key] for key in _KEYS if key in arguments}
    found, why = _applied(choice, table, given)
    title = arguments.get("title")
    return replace(found, title=fit_title(title) if isinstance(title, str) else found.title), why


def says_enough(arguments: Mapping[str, Any]) -> bool:
    """Whether a plan's input determines the chart completely."""
    return {"mark", "x", "y"} <= arguments.keys()


def fit_title(title: str) -> str:
    """A title on one line, without addresses; empty if it cannot be one."""
    line = " ".join("".join(c if c.isprintable() else " " for c in title).split())
    return "" if _ADDRESS.search(line) or len(line) > MAX_TITLE_CHARS else line


_KEYS = ("mark", "x", "y", "series", "order", "stacked")


def _applied(choice: Choice, table: Table, given: Mapping[str, Any]) -> tuple[Choice, str]:
    if not given:
        return choice, ""
    mark = str(given.get("mark") or choice.mark).lower()
    mark = _SYNONYMS.get(mark, mark)
    order = given.get("order") or choice.order
    names = given.get("y")
    wanted = [names] if isinstance(names, str) else names if isinstance(names, list) else []
    found = [table.column(str(name)) for name in wanted]
    y = tuple(column for column in found if column is not None)
    if mark not in _MARKS or order not in _ORDERS:
        return choice, "its kind of chart or order is unknown"
    if len(y) < len(wanted):
        return choice, "it names columns that the table does not have"
    y = y or choice.y
    x = _column(table, given, "x", choice.x)
    series = _column(table, given, "series", choice.series)
    unknown = [key for key in ("x", "series") if given.get(key) and not table.column(given[key])]
    if unknown:
        return choice, "it names columns that the table does not have"
    stacked = bool(given.get("stacked", choice.stacked)) and min(y[0].numbers, default=0) >= 0
    if mark == "histogram":
        x, series = None, None
    if x is not None and (x.kind is Kind.TIME or x.is_ordinal):
        order = "given"
    changed = replace(
        choice,
        mark=cast(Mark, mark),
        x=x,
        y=y,
        series=series,
        order=order,
        stacked=stacked,
        title="",
    )
    if changed == replace(choice, title=""):
        return choice, ""
    changed = replace(changed, notes=())
    why = feasible(changed)
    return (choice, why) if why else (changed, "")


def _column(table: Table, given: Mapping[str, Any], key: str, default: Any) -> Any:
    if key not in given:
        return default
    return table.column(given[key]) if isinstance(given[key], str) else None
