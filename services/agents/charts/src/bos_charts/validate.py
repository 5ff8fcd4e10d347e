"""Validation of specifications: closed set of keys, inline data alone, Vega-Lite's JSON schema."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema

VEGA_LITE_VERSION = "6.4"
SCHEMA_URL = "https://vega.github.io/schema/vega-lite/v6.json"
MARKS = frozenset({"bar", "line", "area", "point", "arc", "text"})
MAX_ROWS = 5_000
MAX_CELL_CHARS = 200
MAX_SPEC_BYTES = 1024 * 1024
_MAX_DEPTH = 12
_MAX_TEXT_CHARS = 500
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML does not allow, which would end the drawing process."""

_KEYS = frozenset(
    [
        "$schema",
        "title",
        "data",
        "values",
        "mark",
        "encoding",
        "layer",
        "width",
        "height",
        "config",
        "text",
        "anchor",
        "type",
        "x",
        "y",
        "x2",
        "xOffset",
        "yOffset",
        "theta",
        "color",
        "order",
        "field",
        "sort",
        "axis",
        "scale",
        "stack",
        "legend",
        "format",
        "timeUnit",
        "bin",
        "binned",
        "step",
        "labelLimit",
        "labelAngle",
        "labelOverlap",
        "minExtent",
        "maxExtent",
        "grid",
        "tickMinStep",
        "domain",
        "range",
        "domainMin",
        "domainMax",
        "nice",
        "zero",
        "value",
        "point",
        "strokeWidth",
        "filled",
        "size",
        "opacity",
        "align",
        "baseline",
        "dx",
        "radius",
        "outerRadius",
        "innerRadius",
        "symbolType",
        "background",
        "padding",
        "font",
        "locale",
        "view",
        "stroke",
        "fontSize",
        "fontWeight",
        "offset",
        "gridColor",
        "domainColor",
        "tickColor",
        "labelFontSize",
        "titleFontSize",
        "titlePadding",
        "labelColor",
        "titleColor",
        "titleFontWeight",
        "orient",
        "bar",
        "line",
        "area",
        "number",
        "time",
        "decimal",
        "thousands",
        "grouping",
        "currency",
        "dateTime",
        "date",
        "periods",
        "days",
        "shortDays",
        "months",
        "shortMonths",
    ]
)
"""All keys of a specification outside its rows; none of them takes an address or an expression."""


def problem(spec: Any) -> str:
    """Why a specification must not be drawn; empty if it may.

    Refused are unknown keys, which excludes all that load data or images, evaluate expressions
    or link elsewhere; rows that are no flat maps; and what Vega-Lite's schema refuses.
    """
    if not isinstance(spec, dict):
        return "it is no map"
    if spec.get("$schema") != SCHEMA_URL:
        return "it names another schema"
    data = spec.get("data")
    if not isinstance(data, dict) or set(data) != {"values"}:
        return "its data are not inline"
    rest = {key: value for key, value in spec.items() if key != "data"}
    found = _rows_problem(data["values"]) or _part_problem(rest, 0)
    return found or _schema_problem(spec)


def _rows_problem(rows: Any) -> str:
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS:
        return f"it needs 1 to {MAX_ROWS} rows"
    for row in rows:
        if not isinstance(row, dict):
            return "a row is no map"
        for cell in row.values():
            if isinstance(cell, float) and not math.isfinite(cell):
                return "a cell is no number that JSON knows"
            if not isinstance(cell, str | int | float | bool | None):
                return "a cell is nested"
            if isinstance(cell, str) and _CONTROL.search(cell):
                return "a cell has control characters"
            if isinstance(cell, str) and len(cell) > MAX_CELL_CHARS:
                return f"a cell has more than {MAX_CELL_CHARS} characters"
    return ""


def _part_problem(part: Any, depth: int) -> str:
    if depth > _MAX_DEPTH:
        return "it is nested too deeply"
    if isinstance(part, dict):
        if unknown := sorted(set(part) - _KEYS):
            return f"it has the key {unknown[0][:40]!r}"
        mark = part.get("mark")
        kind = mark.get("type") if isinstance(mark, dict) else mark
        if "mark" in part and kind not in MARKS:
            return "it has an unknown mark"
        if "data" in part:
            return "its data are not in one place"
        return next(filter(None, (_part_problem(value, depth + 1) for value in part.values())), "")
    if isinstance(part, list):
        return next(filter(None, (_part_problem(value, depth + 1) for value in part)), "")
    if isinstance(part, str) and (len(part) > _MAX_TEXT_CHARS or _CONTROL.search(part)):
        return "it has a text that is too long or has control characters"
    return ""


def _schema_problem(spec: dict[str, Any]) -> str:
    # One row stands for all: rows were checked already, and the schema allows any.
    checked = spec | {"data": {"values": spec["data"]["values"][:1]}}
    error = next(_validator().iter_errors(checked), None)
    if error is None:
        return ""
    place = ".".join(str(step) for step in error.absolute_path)
    return f"Vega-Lite's schema refuses {place or 'it'}"


@cache
def _validator() -> jsonschema.Draft7Validator:
    name = f"vega-lite-{VEGA_LITE_VERSION}.json"
    text = files("bos_charts").joinpath("schema", name).read_text(encoding="utf-8")
    return jsonschema.Draft7Validator(json.loads(text))
