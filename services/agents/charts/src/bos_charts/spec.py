"""Vega-Lite specifications of choices: built from closed parts, data inline, no expressions. Pure.

Names of columns and texts of cells stand as data and as titles only: fields have names of their own
where a column's is no plain word, so no name can be read as a path or an instruction.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from bos_charts.choice import Choice
from bos_charts.columns import OBJECT_NAMES, Kind, Unit
from bos_charts.data import ChartData
from bos_charts.fonts import font_for, is_complex
from bos_charts.formats import Formats
from bos_charts.validate import SCHEMA_URL

_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
# Okabe and Ito's colours, which people with colour blindness tell apart, in an order of contrast.
_COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#7F7F7F", "#B8A800"]
_INK, _MUTED, _RULE = "#1F2933", "#52606D", "#D9DEE4"
_WIDTH, _HEIGHT = 620, 340
_BAR_STEP = 26
_MAX_LABELLED = 20
_MAX_LABEL_PX = 230
_MAX_POINTS_MARKED = 40


def specification(choice: Choice, data: ChartData, formats: Formats) -> dict[str, Any]:
    """Specification of a chart: a Vega-Lite unit or layer with its rows inline."""
    names = field_names(choice)
    rows = [_row(point, names) for point in data.points]
    body = _Body(choice, data, formats, names).parts()
    texts = [choice.title, *(str(x) for x in data.x_order), *data.series_order]
    texts += [column.label for column in (choice.x, choice.series, *choice.y) if column]
    return {
        "$schema": SCHEMA_URL,
        "title": {"text": choice.title, "anchor": "start"},
        "data": {"values": rows},
        **body,
        "config": _config(formats, font_for(texts)),
    }


def field_names(choice: Choice) -> dict[str, str]:
    """Names of the fields ``x``, ``y`` and ``series`` in the rows: those of plain column names."""
    wanted = {
        "x": choice.y[0].name if choice.mark == "histogram" else choice.x.name if choice.x else "",
        "y": "" if choice.mark == "histogram" or len(choice.y) > 1 else choice.y[0].name,
        "series": choice.series.name if choice.series else "",
    }
    defaults = {"x": "name", "y": "value", "series": "series"}
    if choice.mark == "histogram":
        defaults["y"] = "count"
    names: dict[str, str] = {}
    for role, name in wanted.items():
        fit = (
            bool(_FIELD.fullmatch(name))
            and name not in OBJECT_NAMES
            and name not in names.values()
            and name != "to"
        )
        names[role] = name if fit and name not in defaults.values() else defaults[role]
    return names


def _row(point: Any, names: Mapping[str, str]) -> dict[str, Any]:
    x = point.x.isoformat() if isinstance(point.x, date) else point.x
    row: dict[str, Any] = {names["x"]: x, names["y"]: point.y}
    if point.upper is not None:
        row["to"] = point.upper
    if point.series:
        row[names["series"]] = point.series
    return row


class _Body:
    """Marks and encodings of one chart."""

    def __init__(
        self, choice: Choice, data: ChartData, formats: Formats, names: Mapping[str, str]
    ) -> None:
        self._choice, self._data, self._formats, self._names = choice, data, formats, names
        self._y_title = choice.y[0].label if len(choice.y) == 1 else ""
        self._x_title = choice.x.label if choice.x is not None else ""

    def parts(self) -> dict[str, Any]:
        match self._choice.mark:
            case "histogram":
                return self._histogram()
            case "point":
                return self._points()
            case "arc":
                return self._arc()
            case "bar" if self._choice.x is None or self._choice.x.kind is not Kind.TIME:
                return self._bars()
            case "bar":
                return self._columns()
            case _:
                return self._lines()

    def _number_axis(self, **more: Any) -> dict[str, Any]:
        axis = {"format": self._formats.axis(self._data.unit), "title": self._y_title or None}
        return axis | more

    def _y(self, **more: Any) -> dict[str, Any]:
        stack = {"stack": "zero" if self._choice.stacked else None}
        return {
            "field": self._names["y"],
            "type": "quantitative",
            "axis": self._number_axis(),
            **(stack if self._choice.mark in ("bar", "area") else {}),
            **more,
        }

    def _colour(self) -> dict[str, Any]:
        series = self._data.series_order
        if not series:
            return {}
        title = self._choice.series.label if self._choice.series is not None else None
        return {
            "color": {
                "field": self._names["series"],
                "type": "nominal",
                "scale": {"domain": series, "range": _colours(len(series))},
                "legend": {"title": title},
            }
        }

    def _names_axis(self) -> dict[str, Any]:
        order = [str(x) for x in self._data.x_order]
        axis: dict[str, Any] = {
            "labelLimit": _MAX_LABEL_PX,
            "maxExtent": 2 * _MAX_LABEL_PX,
            "title": self._x_title or None,
        }
        if widest := max((_width(text) for text in order if is_complex(text)), default=0):
            # The renderer measures such scripts too narrow.
            axis["minExtent"] = min(_MAX_LABEL_PX, widest)
            axis["labelLimit"] = 0
        return {"field": self._names["x"], "type": "nominal", "sort": order, "axis": axis}

    def _bars(self) -> dict[str, Any]:
        """Horizontal bars, so that long names can be read; one group of bars for each name."""
        grouped = bool(self._data.series_order) and not self._choice.stacked
        y = self._names_axis()
        x = self._y(axis=self._number_axis(grid=True))
        encoding = {"y": y, "x": x, **self._colour()}
        if grouped:
            encoding["yOffset"] = {
                "field": self._names["series"],
                "type": "nominal",
                "sort": self._data.series_order,
            }
        step = _BAR_STEP if not grouped else 14
        size = {"width": _WIDTH, "height": {"step": step}}
        bar = {"mark": {"type": "bar"}, "encoding": encoding}
        values = [point.y for point in self._data.points if point.y is not None]
        if self._data.series_order or len(values) > _MAX_LABELLED or min(values, default=0) < 0:
            return size | bar
        text = {
            "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 4, "color": _INK},
            "encoding": {
                "text": {
                    "field": self._names["y"],
                    "type": "quantitative",
                    "format": self._formats.label(self._data.unit),
                }
            },
        }
        # Room for the text beside the longest bar.
        x["scale"] = {"domainMin": 0, "domainMax": max(values) * 1.18 or 1, "nice": False}
        return size | {"encoding": encoding, "layer": [{"mark": bar["mark"]}, text]}

    def _columns(self) -> dict[str, Any]:
        """Upright bars in the order of time."""
        grouped = bool(self._data.series_order) and not self._choice.stacked
        encoding: dict[str, Any] = {"x": self._time(bars=True), "y": self._y(), **self._colour()}
        if grouped:
            encoding["xOffset"] = {
                "field": self._names["series"],
                "type": "nominal",
                "sort": self._data.series_order,
            }
        return {"width": _WIDTH, "height": _HEIGHT, "mark": {"type": "bar"}, "encoding": encoding}

    def _lines(self) -> dict[str, Any]:
        area = self._choice.mark == "area"
        few = len(self._data.x_order) <= _MAX_POINTS_MARKED
        mark: dict[str, Any] = {"type": "area" if area else "line"}
        mark |= {"opacity": 0.8} if area else {"point": few, "strokeWidth": 2.5}
        y = self._y()
        values = [point.y for point in self._data.points if point.y is not None]
        low, high = min(values), max(values)
        # A trend may leave zero out where it would press the line flat; areas and bars may not.
        y["scale"] = {"zero": area or low < 0 < high or low < (high - low) * 3}
        encoding = {"x": self._time(bars=False), "y": y, **self._colour()}
        return {"width": _WIDTH, "height": _HEIGHT, "mark": mark, "encoding": encoding}

    def _time(self, *, bars: bool) -> dict[str, Any]:
        step, count = self._data.step, len(self._data.x_order)
        axis: dict[str, Any] = {
            "format": self._formats.time(step),
            "title": None,
            "labelOverlap": True,
        }
        if bars:
            return {
                "field": self._names["x"],
                "type": "ordinal",
                "timeUnit": "utcyearmonthdate",
                "axis": axis | {"labelAngle": 0 if count <= 8 else -40, "grid": False},
            }
        if count <= 12:
            axis["values"] = [x.isoformat() for x in self._data.x_order if isinstance(x, date)]
            if len({x.year for x in self._data.x_order if isinstance(x, date)}) == 1:
                axis["labelAngle"] = 0
        scale = {"type": "utc", "nice": False}
        return {"field": self._names["x"], "type": "temporal", "scale": scale, "axis": axis}

    def _points(self) -> dict[str, Any]:
        choice = self._choice
        assert choice.x is not None
        # A chart has one currency sign: that of its vertical axis.
        own = choice.x.currency in ("", self._formats.currency)
        x_unit = choice.x.unit if own else Unit.PLAIN
        x = {
            "field": self._names["x"],
            "type": "quantitative",
            "axis": {"format": self._formats.axis(x_unit), "title": choice.x.label},
            "scale": {"zero": _near_zero(choice.x.numbers)},
        }
        y = self._y(scale={"zero": _near_zero(choice.y[0].numbers)})
        mark = {"type": "point", "filled": True, "size": 70, "opacity": 0.75}
        encoding = {"x": x, "y": y, **self._colour()}
        return {"width": _WIDTH, "height": _HEIGHT, "mark": mark, "encoding": encoding}

    def _arc(self) -> dict[str, Any]:
        order = [str(x) for x in self._data.x_order]
        colour = {
            "field": self._names["x"],
            "type": "nominal",
            "sort": order,
            "scale": {"domain": order, "range": _colours(len(order))},
            "legend": {"title": self._x_title, "labelLimit": _MAX_LABEL_PX, "symbolType": "circle"},
        }
        theta = {"field": self._names["y"], "type": "quantitative", "stack": True}
        # Largest first, clockwise from the top.
        rank = {"field": self._names["y"], "type": "quantitative", "sort": "descending"}
        encoding: dict[str, Any] = {"theta": theta, "color": colour, "order": rank}
        label = {
            "mark": {"type": "text", "radius": 172, "color": _INK},
            "encoding": {
                "text": {
                    "field": self._names["y"],
                    "type": "quantitative",
                    "format": self._formats.label(self._data.unit),
                },
                "color": {"value": _INK},
            },
        }
        arc = {"mark": {"type": "arc", "outerRadius": 130, "innerRadius": 60}}
        return {"width": 460, "height": 400, "encoding": encoding, "layer": [arc, label]}

    def _histogram(self) -> dict[str, Any]:
        title = self._choice.y[0].label
        edges = [x for x in self._data.x_order if isinstance(x, float)]
        width = (self._data.points[0].upper or 1.0) - edges[0]
        x = {
            "field": self._names["x"],
            "type": "quantitative",
            "bin": {"binned": True, "step": width},
            "axis": {"format": self._formats.axis(self._data.unit), "title": title, "grid": False},
        }
        y = {
            "field": self._names["y"],
            "type": "quantitative",
            "axis": {"title": "Count", "format": ",.4~f", "tickMinStep": 1},
        }
        encoding = {"x": x, "x2": {"field": "to"}, "y": y}
        return {"width": _WIDTH, "height": _HEIGHT, "mark": {"type": "bar"}, "encoding": encoding}


def _near_zero(numbers: Iterable[float]) -> bool:
    """Whether an axis that starts at zero does not press the points together."""
    given = list(numbers)
    low, high = min(given), max(given)
    return low < 0 < high or low < (high - low) * 2


def _colours(count: int) -> list[str]:
    return [_COLOURS[index % len(_COLOURS)] for index in range(count)]


def _width(text: str) -> int:
    """Rough width of a text in pixels; marks above and below letters take none."""
    letters = sum(unicodedata.category(char) not in ("Mn", "Cf") for char in text)
    return math.ceil(letters * 8.5)


def _config(formats: Formats, font: str) -> dict[str, Any]:
    grey = {"labelColor": _MUTED, "titleColor": _MUTED, "titleFontWeight": "normal"}
    return {
        "background": "#FFFFFF",
        "padding": 16,
        "font": font,
        "locale": formats.vega_locale,
        "view": {"stroke": None},
        "title": {"fontSize": 16, "fontWeight": "normal", "color": _INK, "offset": 14},
        "axis": {
            "gridColor": _RULE,
            "domainColor": _MUTED,
            "tickColor": _RULE,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titlePadding": 10,
            **grey,
        },
        "legend": {"labelFontSize": 12, "titleFontSize": 12, "orient": "right", **grey},
        "text": {"fontSize": 12},
        "bar": {"color": _COLOURS[0]},
        "line": {"color": _COLOURS[0]},
        "area": {"color": _COLOURS[0]},
        "point": {"color": _COLOURS[0]},
    }
