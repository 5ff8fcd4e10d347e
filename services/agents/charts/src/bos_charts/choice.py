"""Choice of a chart by rule from column types and the question. Pure.

::

    a time column        -> line         words for parts          -> pie of few parts, or bars
    a category           -> sorted bars  words for a distribution -> histogram
    two numbers, related -> points       one row, several numbers -> a bar for each
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bos_charts.columns import Column, Kind, Unit
from bos_charts.tables import Table, mentions

Mark = Literal["bar", "line", "area", "point", "arc", "histogram"]
Order = Literal["value", "name", "given"]

MAX_PARTS = 6
"""Maximum slices of a pie; more are drawn as bars."""
_MAX_MEASURES = 4
_MIN_HISTOGRAM = 10

_NAMED: tuple[tuple[re.Pattern[str], Mark], ...] = (
    (re.compile(r"\bhistogram|\bdistribut|\bspread of|\bfrequency", re.I), "histogram"),
    (re.compile(r"\bscatter|\bcorrelat|\brelation|\bversus\b|\bvs\b|\bagainst\b", re.I), "point"),
    (re.compile(r"\bpie\b|\bdonut|\bdoughnut", re.I), "arc"),
    (re.compile(r"\barea (chart|graph|plot)", re.I), "area"),
    (re.compile(r"\bline\b (chart|graph|plot)|\bas a line\b|\blines\b", re.I), "line"),
    (re.compile(r"\b(bar|column)s? ?(chart|graph|plot)|\bas bars\b", re.I), "bar"),
)
_PARTS = re.compile(
    r"\bshares? of\b|\bparts? of\b|\bproportion|\bbreakdown|\bcomposition|\bsplit", re.I
)
_STACKED = re.compile(r"\bstack", re.I)


@dataclass(frozen=True, slots=True)
class Choice:
    """Mark, columns, order and title of a chart."""

    mark: Mark
    x: Column | None
    """Column of positions or categories; None: each column of ``y`` is a bar."""
    y: tuple[Column, ...]
    series: Column | None = None
    """Column that splits into lines or colours."""
    order: Order = "value"
    stacked: bool = False
    title: str = ""
    notes: tuple[str, ...] = ()
    """Notes on the choice for the reader."""

    @property
    def default_title(self) -> str:
        """Title from the names of its columns."""
        names = " and ".join(column.label for column in self.y[:2])
        if len(self.y) > 2:
            names = f"{self.y[0].label} and {len(self.y) - 1} more"
        if self.mark == "histogram":
            return f"Distribution of {_lower(names)}"
        if self.mark == "point" and self.x is not None:
            return f"{names} against {_lower(self.x.label)}"
        by = [_lower(column.label) for column in (self.x, self.series) if column is not None]
        return f"{names} by {' and '.join(by)}" if by else names


class NothingToDraw(Exception):
    """The table has no columns that make a chart; the message says why and what to do."""


def choose(table: Table, question: str) -> Choice:
    """The chart that the rules choose for a table and a question.

    Raises:
        NothingToDraw: no column holds numbers, or there are single records only.
    """
    wanted = wanted_mark(question)
    measures = _measures(table, question)
    if not measures:
        raise NothingToDraw(
            f"The table {table.name} has no column of numbers, so nothing can be drawn of it. Let "
            "the step before return counts or totals."
        )
    categories = _categories(table, question)
    times = [column for column in table.columns if column.kind is Kind.TIME]
    if wanted == "histogram":
        return Choice("histogram", None, measures[:1])
    if wanted == "point" and len(measures) > 1:
        return _points(measures, question, categories)
    if times:
        return _over_time(table, times, measures, categories, question, wanted)
    if categories:
        return _by_category(measures, categories, question, wanted)
    if table.row_count == 1 and len(measures) > 1:
        alike = _same_unit(measures)
        return Choice("bar", None, alike, order="given", notes=_left_out(measures, alike))
    if len(measures) > 1:
        return _points(measures, question, categories)
    if table.row_count >= _MIN_HISTOGRAM:
        return Choice("histogram", None, measures[:1])
    raise NothingToDraw(
        f"The table {table.name} has numbers but nothing that they belong to, such as a name, a "
        "group or a date. Let the step before return such a column too."
    )


def wanted_mark(question: str) -> Mark | None:
    """Chart that the question names."""
    return next((mark for pattern, mark in _NAMED if pattern.search(question)), None)


def feasible(choice: Choice) -> str:
    """Why a choice cannot be drawn; empty if it can."""
    if not choice.y or any(column.kind is not Kind.NUMBER for column in choice.y):
        return "the vertical axis needs columns of numbers"
    if choice.mark == "histogram":
        return "" if len(choice.y) == 1 else "a histogram has one column"
    if choice.mark == "point":
        found = choice.x is not None and choice.x.kind is Kind.NUMBER and len(choice.y) == 1
        return "" if found else "points need two columns of numbers"
    if choice.x is not None and choice.x.kind is Kind.NUMBER:
        return "the horizontal axis needs names or dates"
    if choice.mark in ("line", "area") and (choice.x is None or choice.x.kind is not Kind.TIME):
        return "lines need a column of dates"
    if choice.x is None and choice.mark != "bar":
        return "there is no column for the horizontal axis"
    if choice.x is not None and choice.x.is_id and choice.x.distinct > MAX_PARTS:
        return "the horizontal axis would name single records"
    if choice.series is not None and (choice.series == choice.x or len(choice.y) > 1):
        return "a column of series goes with one column of numbers"
    if choice.series is not None and choice.series.kind is not Kind.CATEGORY:
        return "series need a column of names"
    if choice.mark == "arc" and not is_pie(choice):
        return f"a pie has one column of 2 to {MAX_PARTS} parts, none of them negative"
    if len({(column.unit, column.currency) for column in choice.y}) > 1:
        return "amounts, percentages and counts do not share an axis"
    return ""


def is_pie(choice: Choice) -> bool:
    """Whether the choice consists of few parts that add up to something."""
    if choice.x is None or choice.series is not None or len(choice.y) != 1:
        return False
    measure = choice.y[0]
    whole = sum(measure.numbers) > 0 and min(measure.numbers, default=0) >= 0
    additive = not measure.is_mean or measure.unit is Unit.PERCENT
    return whole and additive and 2 <= choice.x.distinct <= MAX_PARTS


def _over_time(
    table: Table,
    times: Sequence[Column],
    measures: tuple[Column, ...],
    categories: Sequence[Column],
    question: str,
    wanted: Mark | None,
) -> Choice:
    time = max(times, key=lambda column: (mentions(question, column), column.distinct))
    if time.distinct < 2 and categories:
        return _by_category(measures, categories, question, wanted)
    mark: Mark = wanted if wanted in ("line", "area", "bar") else "line"
    if time.distinct < 3 and wanted is None:
        mark = "bar"
    repeated = table.row_count > time.distinct
    series = next((column for column in categories if repeated and column.distinct > 1), None)
    y = measures[:1] if series is not None else _same_unit(measures)
    stacked = mark == "area" or bool(series and mark == "bar" and _may_stack(y[0], question))
    stacked = stacked and min(y[0].numbers, default=0) >= 0
    order: Order = "given"
    return Choice(mark, time, y, series, order, stacked, notes=_left_out(measures, y))


def _by_category(
    measures: tuple[Column, ...], categories: Sequence[Column], question: str, wanted: Mark | None
) -> Choice:
    names = [column for column in categories if not column.is_id]
    if not names and categories[0].distinct > MAX_PARTS:
        raise NothingToDraw(
            f"The table lists {categories[0].distinct} single records by {categories[0].name}. Let "
            "the step before group them, such as by region or month, or return the top ten."
        )
    x, *others = names or categories
    series = next((column for column in others if column.distinct > 1), None)
    repeats = len(x.cells) > x.distinct
    if series is not None and not repeats:
        series = None  # it says more about the same bar, and splits none
    y = measures[:1] if series is not None else _same_unit(measures)
    order: Order = "given" if x.is_ordinal else "value"
    notes = _left_out(measures, y)
    pie = Choice("arc", x, measures[:1], order=order, notes=_left_out(measures, measures[:1]))
    about_parts = bool(_PARTS.search(question))
    if (wanted == "arc" or (about_parts and wanted is None)) and series is None:
        if is_pie(pie):
            return pie
        if wanted == "arc":
            notes += (f"A pie shows 2 to {MAX_PARTS} parts of a whole, so these are bars.",)
    elif wanted in ("line", "area"):
        notes += ("A line needs dates, so these are bars.",)
    positive = min((n for column in y for n in column.numbers), default=0) >= 0
    wants_stack = bool(_STACKED.search(question)) or about_parts
    stacked = positive and (series is not None or len(y) > 1) and wants_stack
    return Choice("bar", x, y, series, order, stacked, notes=notes)


def _points(measures: tuple[Column, ...], question: str, categories: Sequence[Column]) -> Choice:
    first, second = measures[:2]
    asked = question.lower()
    # "cost against revenue": what is named first stands upright.
    if _position(asked, second) < _position(asked, first):
        first, second = second, first
    colours = (c for c in categories if not c.is_id and 1 < c.distinct <= MAX_PARTS)
    return Choice("point", second, (first,), next(colours, None), order="given")


def _position(question: str, column: Column) -> int:
    found = question.find(column.name.replace("_", " ").lower())
    return found if found >= 0 else len(question)


def _measures(table: Table, question: str) -> tuple[Column, ...]:
    """Columns of numbers, those that the question names first, then in order."""
    numbers = [c for c in table.columns if c.kind is Kind.NUMBER and not c.is_id]
    return tuple(sorted(numbers, key=lambda column: -mentions(question, column)))


def _categories(table: Table, question: str) -> list[Column]:
    """Columns of names: no ids first, then those that the question names, then in order."""
    found = [c for c in table.columns if c.kind is Kind.CATEGORY]
    return sorted(found, key=lambda column: (column.is_id, -mentions(question, column)))


def _same_unit(measures: tuple[Column, ...]) -> tuple[Column, ...]:
    """The first measure and those that can share its axis: same unit, similar size."""
    first = measures[0]
    top = max(map(abs, first.numbers), default=0.0)

    def fits(column: Column) -> bool:
        other = max(map(abs, column.numbers), default=0.0)
        similar = min(top, other) > 0 and max(top, other) / min(top, other) < 100
        alike = (column.unit, column.currency) == (first.unit, first.currency)
        return alike and column.is_mean == first.is_mean and similar

    return (first, *filter(fits, measures[1:]))[:_MAX_MEASURES]


def _left_out(measures: Sequence[Column], drawn: Sequence[Column]) -> tuple[str, ...]:
    names = [column.label for column in measures if column not in drawn]
    if not names:
        return ()
    shown = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
    return (f"Not drawn, as it needs an axis of its own: {shown}.",)


def _may_stack(measure: Column, question: str) -> bool:
    return not measure.is_mean and bool(_STACKED.search(question) or _PARTS.search(question))


def _lower(label: str) -> str:
    """A label within a sentence; abbreviations stay as they are."""
    return label if label[:2].isupper() else label[:1].lower() + label[1:]


def with_title(choice: Choice, title: str) -> Choice:
    """The choice under a title; without one under that of its columns."""
    return replace(choice, title=title or choice.default_title)
