"""Rows of a chart: aggregated, ordered, cut to the top with the others, gaps made visible. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from bos_charts.choice import Choice, NothingToDraw
from bos_charts.columns import Cell, Column, Kind, Unit, ordinal_rank

OTHERS = "Others"
NO_NAME = "(none)"
_MAX_BINS = 20
_MAX_DAYS = 62
"""Points of daily data; longer spans are drawn by week or month."""


@dataclass(frozen=True, slots=True)
class Point:
    """One bar, slice or point: texts, days and numbers as they are drawn."""

    x: Cell
    y: float | None
    series: str = ""
    upper: float | None = None
    """Upper end of the bin of a histogram, whose lower end is ``x``."""


@dataclass(frozen=True, slots=True)
class ChartData:
    """Points in drawing order."""

    points: tuple[Point, ...]
    unit: Unit
    notes: tuple[str, ...] = ()
    step: str = ""
    """Distance of days: ``day``, ``week``, ``month``, ``quarter``, ``year``; else empty."""

    @property
    def x_order(self) -> list[Cell]:
        """Positions, each once, in order of drawing."""
        return list(dict.fromkeys(point.x for point in self.points))

    @property
    def series_order(self) -> list[str]:
        """Series, each once, in order of drawing; empty without series."""
        return list(dict.fromkeys(point.series for point in self.points if point.series))


def chart_data(
    choice: Choice, *, max_points: int, max_categories: int, max_series: int
) -> ChartData:
    """Rows of the chart from the cells of its columns.

    Raises:
        NothingToDraw: nothing is left to draw, or more than ``max_points`` points are.
    """
    if choice.mark == "histogram":
        data = _histogram(choice.y[0])
    elif choice.mark == "point":
        data = _pairs(choice, max_series)
    else:
        data = _grouped(choice, max_categories, max_series)
    if not any(point.y is not None for point in data.points):
        raise NothingToDraw("Every number of the table is missing, so nothing can be drawn.")
    if len(data.points) > max_points:
        raise NothingToDraw(
            f"The chart would have {len(data.points)} points, and at most {max_points} are drawn. "
            "Let the step before aggregate, such as by month, or return the top ten."
        )
    return data


def _histogram(column: Column) -> ChartData:
    """Counts of numbers in bins of equal, round width; Sturges' rule chooses how many."""
    numbers = sorted(column.numbers)
    if not numbers:
        return ChartData((), column.unit)
    low, high = numbers[0], numbers[-1]
    bins = min(_MAX_BINS, max(1, math.ceil(math.log2(len(numbers)) + 1)))
    width = _round_width((high - low) / bins) if high > low else 1.0
    start = math.floor(low / width) * width
    counts = Counter(int((number - start) / width) for number in numbers)
    points = [
        Point(start + n * width, float(counts[n]), upper=start + (n + 1) * width)
        for n in range(max(counts) + 1)
    ]
    notes = (f"{len(numbers)} values were counted in {len(points)} ranges.",)
    return ChartData(tuple(points), column.unit, notes)


def _round_width(width: float) -> float:
    scale = 10.0 ** math.floor(math.log10(width))
    return next(step * scale for step in (1, 2, 2.5, 5, 10) if step * scale >= width * 0.999)


def _pairs(choice: Choice, max_series: int) -> ChartData:
    assert choice.x is not None
    rows = list(zip(choice.x.cells, choice.y[0].cells, _series_cells(choice), strict=True))
    points = [
        Point(x, y, series)
        for x, y, series in rows
        if isinstance(x, float) and isinstance(y, float)
    ]
    points, notes = _merge_series(points, max_series, combine=None)
    missing = len(rows) - len(points)
    if missing:
        notes.append(f"{missing} rows without both numbers were left out.")
    return ChartData(tuple(points), choice.y[0].unit, tuple(notes))


def _grouped(choice: Choice, max_categories: int, max_series: int) -> ChartData:
    """One point for each position and series; several rows of the same are aggregated."""
    mean = any(column.is_mean for column in choice.y)
    combine = _mean if mean else _sum
    is_time = choice.x is not None and choice.x.kind is Kind.TIME
    step = _time_step(choice.x) if is_time and choice.x is not None else ""
    cells: dict[tuple[Cell, str], list[float | None]] = defaultdict(list)
    for x, series, value in _long(choice):
        if is_time and x is None:
            continue
        place = _floor(x, step) if isinstance(x, date) else (NO_NAME if x is None else x)
        cells[place, series].append(value)
    notes = []
    repeated = sum(len(values) > 1 for values in cells.values())
    if repeated:
        per = step if is_time else choice.x.label if choice.x else ""
        how = "averaged" if mean else "added up"
        notes.append(f"Several rows of the same {per.lower()} were {how}.")
    points = [Point(x, combine(values), series) for (x, series), values in cells.items()]
    points, merged = _merge_series(points, max_series, None if mean else combine)
    notes += merged
    if is_time:
        points, gaps = _with_gaps(points, step, choice.mark)
        notes += gaps
    else:
        points, cut = _top(points, choice, max_categories, None if mean else combine)
        notes += cut
    return ChartData(tuple(points), choice.y[0].unit, tuple(notes), step)


def _long(choice: Choice) -> Iterable[tuple[Cell, str, float | None]]:
    """Position, series and value of each number; several columns become series of their names."""
    for column in choice.y:
        values = [cell if isinstance(cell, float) else None for cell in column.cells]
        if choice.x is None:
            yield column.label, "", combine_one(values)
        elif len(choice.y) > 1:
            yield from zip(choice.x.cells, [column.label] * len(values), values, strict=True)
        else:
            yield from zip(choice.x.cells, _series_cells(choice), values, strict=True)


def combine_one(values: Sequence[float | None]) -> float | None:
    """The one number of a table with one row."""
    return next((value for value in values if value is not None), None)


def _series_cells(choice: Choice) -> list[str]:
    if choice.series is None:
        return [""] * len(choice.y[0].cells)
    return [NO_NAME if cell is None else str(cell) for cell in choice.series.cells]


def _sum(values: Iterable[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return math.fsum(given) if given else None


def _mean(values: Iterable[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return math.fsum(given) / len(given) if given else None


def _merge_series(
    points: list[Point], most: int, combine: Callable[..., float | None] | None
) -> tuple[list[Point], list[str]]:
    """Points with the largest series and the rest as Others; left out where no sum makes sense."""
    sizes: dict[str, float] = defaultdict(float)
    for point in points:
        sizes[point.series] += abs(point.y or 0.0)
    if len(sizes) <= most:
        return points, []
    kept = set(sorted(sizes, key=lambda name: (-sizes[name], name))[: most - 1])
    rest = len(sizes) - len(kept)
    if combine is None:
        return [p for p in points if p.series in kept], [f"{rest} smaller series were left out."]
    merged: dict[Cell, list[float | None]] = defaultdict(list)
    for point in points:
        if point.series not in kept:
            merged[point.x].append(point.y)
    others = [Point(x, combine(values), OTHERS) for x, values in merged.items()]
    return (
        [p for p in points if p.series in kept] + others,
        [f"The {rest} smallest series are drawn as {OTHERS}."],
    )


def _top(
    points: list[Point], choice: Choice, most: int, combine: Callable[..., float | None] | None
) -> tuple[list[Point], list[str]]:
    """Points in the order of the choice; beyond ``most`` positions the smallest are merged."""
    totals: dict[Cell, float] = defaultdict(float)
    for point in points:
        totals[point.x] += point.y or 0.0
    order = list(totals)
    ranks = ordinal_rank(order) if choice.order != "name" else None
    if choice.order == "value":
        order.sort(key=lambda x: (-totals[x], str(x)))
    elif ranks is not None and choice.x is not None and choice.x.is_ordinal:
        order.sort(key=lambda x: ranks.get(str(x), len(ranks)))
    elif choice.order == "name":
        order.sort(key=str)
    notes: list[str] = []
    if len(order) > most:
        largest = sorted(totals, key=lambda x: (-abs(totals[x]), str(x)))[
            : most - (combine is not None)
        ]
        kept, dropped = set(largest), len(order) - len(largest)
        rest = [point for point in points if point.x not in kept]
        points = [point for point in points if point.x in kept]
        order = [x for x in order if x in kept]
        if combine is None:
            notes.append(f"{dropped} smaller ones were left out.")
        else:
            series = list(dict.fromkeys(point.series for point in rest))
            points += [
                Point(OTHERS, combine([p.y for p in rest if p.series == name]), name)
                for name in series
            ]
            order.append(OTHERS)
            notes.append(f"The {dropped} smallest are drawn as {OTHERS}.")
    places = {x: position for position, x in enumerate(order)}
    sizes: dict[str, float] = defaultdict(float)
    for point in points:
        sizes[point.series] += abs(point.y or 0.0)
    rank = list(sizes)
    if len(choice.y) == 1:
        own = ordinal_rank([name for name in sizes if name != OTHERS]) or {}
        rank.sort(key=lambda name: (name == OTHERS, own.get(name, 0), -sizes[name], name))
    return sorted(points, key=lambda p: (places[p.x], rank.index(p.series))), notes


def _time_step(column: Column) -> str:
    """Distance of the days of a column, coarser where there would be too many points."""
    days = sorted({_day(cell) for cell in column.cells if isinstance(cell, date)})
    if len(days) < 2:
        return "day"
    if all(day.day == 1 for day in days):
        if all(day.month == 1 for day in days):
            return "year"
        months = [day.year * 12 + day.month for day in days]
        gaps = [after - before for before, after in pairwise(months)]
        return "quarter" if all(gap % 3 == 0 for gap in gaps) else "month"
    gaps = [(after - before).days for before, after in pairwise(days)]
    if median(gaps) >= 7 and all(gap % 7 == 0 for gap in gaps):
        return "week"
    span = (days[-1] - days[0]).days
    if span <= _MAX_DAYS:
        return "day"
    return "week" if span <= _MAX_DAYS * 7 and len(days) > _MAX_DAYS else "month"


def _day(cell: date) -> date:
    return cell.date() if isinstance(cell, datetime) else cell


def _floor(cell: date, step: str) -> date:
    day = _day(cell)
    if step == "week":
        return day - timedelta(days=day.weekday())
    if step == "month":
        return day.replace(day=1)
    if step == "quarter":
        return date(day.year, day.month - (day.month - 1) % 3, 1)
    return day.replace(month=1, day=1) if step == "year" else day


def _next(day: date, step: str) -> date:
    if step in ("day", "week"):
        return day + timedelta(days=7 if step == "week" else 1)
    months = day.year * 12 + day.month - 1 + {"month": 1, "quarter": 3}.get(step, 12)
    return date(months // 12, months % 12 + 1, 1)


def _with_gaps(points: list[Point], step: str, mark: str) -> tuple[list[Point], list[str]]:
    """Points in order of time, with an empty one for each period that is missing."""
    days = sorted(x for x in {point.x for point in points} if isinstance(x, date))
    names = list(dict.fromkeys(point.series for point in points))
    known = {(point.x, point.series): point for point in points}
    if not days:
        return [], []
    periods = [days[0]]
    while periods[-1] < days[-1] and len(periods) < 4 * len(days) + 4:
        following = _next(periods[-1], step)
        if following.year > days[-1].year + 1:
            break
        periods.append(following)
    # Far apart, not on one grid, or measured now and then: as they are.
    if set(days) - set(periods) or len(periods) > 2 * len(days):
        periods = days
    missing = len(set(periods) - set(days))
    filled = [known.get((day, name), Point(day, None, name)) for day in periods for name in names]
    note = [f"{missing} of {len(periods)} periods have no data: a gap is shown."] if missing else []
    if mark == "bar":
        note = [text.replace("a gap is shown", "their place stays empty") for text in note]
    return filled, note


def plain_rows(data: ChartData, names: dict[str, str]) -> list[dict[str, Any]]:
    """The rows as maps under the names of their columns, for later steps."""
    rows = []
    for point in data.points:
        row: dict[str, Any] = {names["x"]: point.x, names["y"]: point.y}
        if point.upper is not None:
            row["to"] = point.upper
        if point.series:
            row[names["series"]] = point.series
        rows.append(row)
    return rows
