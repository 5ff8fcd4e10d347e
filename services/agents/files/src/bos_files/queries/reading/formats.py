"""How cells of text write numbers, dates and durations: tests, and readings, in DuckDB's SQL.

``{cell}`` stands for the cell without blanks around it. Sources of the formats of numbers: Unicode
CLDR; of Indian grouping (1,00,000): the same, locale ``en-IN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_BLANKS: Final = " \u00a0\u202f"
_MINUS: Final = "\u2212"
_APOSTROPHES: Final = "\u2019'"
_UNIT: Final = (
    r"(?:[$€£¥￥₹₽₩₺₪฿₫₴₱₦%]|Rs\.?|EUR|USD|GBP|INR|CHF|JPY|CNY|RMB|PLN|CZK|SEK|NOK|DKK|HUF|RUB|TRY"
    r"|AUD|CAD|BRL|MXN|ZAR|KRW|zł|Kč|kr|Ft|руб\.?|元|円|원)"
)
_SPACE: Final = f"[{_BLANKS}]?"
_SIGN: Final = f"[+{_MINUS}-]?"
_PLAIN: Final = "[1-9][0-9]*"
_GROUPS: Final = {
    "english": rf"(?:0|[1-9][0-9]{{0,2}}(?:,[0-9]{{2,3}})*,[0-9]{{3}}|{_PLAIN})(?:\.[0-9]+)?",
    "german": rf"(?:0|[1-9][0-9]{{0,2}}(?:\.[0-9]{{3}})+|{_PLAIN})(?:,[0-9]+)?",
    "french": rf"(?:0|[1-9][0-9]{{0,2}}(?:[{_BLANKS}][0-9]{{3}})+|{_PLAIN})(?:,[0-9]+)?",
    "swiss": rf"(?:0|[1-9][0-9]{{0,2}}(?:[{_APOSTROPHES}][0-9]{{3}})+|{_PLAIN})(?:\.[0-9]+)?",
}
STYLES: Final = {
    style: f"(?:{_SIGN}{_SPACE}{_UNIT}?{_SPACE}{_SIGN}{number}{_SPACE}{_UNIT}?-?"
    rf"|\({_SPACE}{_UNIT}?{_SPACE}{number}{_SPACE}{_UNIT}?\))"
    for style, number in _GROUPS.items()
}
"""Patterns of numbers with a sign before or behind, or in brackets, and perhaps a unit."""
_UNIT_OF: Final = f"regexp_extract({{cell}}, '{_UNIT}')"
_BARE: Final = f"regexp_replace({{cell}}, '{_UNIT}|[{_BLANKS}()+{_MINUS}-]', '', 'g')"
_MARKED: Final = f"[0-9][.,{_BLANKS}{_APOSTROPHES}][0-9]|{_UNIT}"
"""A number with a separator or a unit."""
_ISO: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_ZONE: Final = r"(Z|[+-][0-9]{2}:?[0-9]{2})"


def _quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


def _is(pattern: str) -> str:
    return f"regexp_full_match({{cell}}, {_quoted(pattern)})"


def _strptime(*formats: str) -> str:
    listed = ", ".join(f"'{each}'" for each in formats)
    return f"CAST(try_strptime({{cell}}, [{listed}]) AS DATE)"


_POINTED: Final = _strptime("%d.%m.%y", "%d.%m.%Y")
_DAY_FIRST: Final = _strptime("%d/%m/%Y", "%d-%m-%Y")
_MONTH_FIRST: Final = _strptime("%m/%d/%Y", "%m-%d-%Y")
_YEAR_FIRST: Final = _strptime("%Y/%m/%d", "%Y.%m.%d", "%Y年%m月%d日")
_WITHOUT_ZONE: Final = f"CAST(regexp_replace({{cell}}, '{_ZONE}$', '') AS TIMESTAMP)"
_HOURS, _MINUTES = (
    f"CAST(regexp_extract({{cell}}, '{pattern}$', 1) AS INTEGER)"
    for pattern in ("([+-][0-9]{2}):?[0-9]{2}", "[+-][0-9]{2}:?([0-9]{2})")
)
_OFFSET_MINUTES: Final = (
    f"(CASE WHEN {{cell}} LIKE '%Z' THEN 0 ELSE {_HOURS} * 60 + {_MINUTES}"
    " * (CASE WHEN regexp_matches({cell}, '-[0-9]{2}:?[0-9]{2}$') THEN -1 ELSE 1 END) END)"
)
_SECONDS: Final = (
    "(CASE WHEN {cell} LIKE '-%' THEN -1 ELSE 1 END) * ("
    "CAST(split_part(ltrim({cell}, '-'), ':', 1) AS BIGINT) * 3600"
    " + CAST(split_part({cell}, ':', 2) AS BIGINT) * 60"
    " + CAST(split_part({cell}, ':', 3) AS BIGINT))"
)

_SLASHED: Final = r"[0-9]{1,2}[/-][0-9]{1,2}[/-][0-9]{4}"
PATTERNS: Final = {
    "truth": "[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]",
    "integer": "[+-]?(0|[1-9][0-9]{0,17})",
    "decimal": r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?",
    **STYLES,
    "double": r"[+-]?([1-9][0-9]*|0)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?",
    "date": _ISO,
    "pointed_date": r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}|[0-9]{2}\.[0-9]{2}\.[0-9]{2}",
    "year_first": "[0-9]{4}([/.][0-9]{1,2}[/.][0-9]{1,2}|年[0-9]{1,2}月[0-9]{1,2}日)",
    "day_first": _SLASHED,
    "month_first": _SLASHED,
    "timestamp": f"{_ISO}({_CLOCK})?",
    "zoned": f"{_ISO}{_CLOCK}{_ZONE}",
    "duration": "-?[0-9]{1,6}:[0-5][0-9](:[0-5][0-9])?",
}
"""Patterns of whole cells, in the order in which they are preferred; for Python and for DuckDB."""
_VALID: Final = {
    "date": "try_cast({cell} AS DATE)",
    "pointed_date": _POINTED,
    "year_first": _YEAR_FIRST,
    "day_first": _DAY_FIRST,
    "month_first": _MONTH_FIRST,
    "timestamp": "try_cast({cell} AS TIMESTAMP)",
    "zoned": f"try({_WITHOUT_ZONE})",
}
SHAPES: Final = {
    shape: _is(pattern) + (f" AND {_VALID[shape]} IS NOT NULL" if shape in _VALID else "")
    for shape, pattern in PATTERNS.items()
}
"""Conditions on a cell."""
READS: Final = {
    "truth": "lower({cell}) = 'true'",
    "integer": "CAST({cell} AS BIGINT)",
    "double": "CAST({cell} AS DOUBLE)",
    "date": "CAST({cell} AS DATE)",
    "pointed_date": _POINTED,
    "year_first": _YEAR_FIRST,
    "day_first": _DAY_FIRST,
    "month_first": _MONTH_FIRST,
    "timestamp": "CAST({cell} AS TIMESTAMP)",
    "zoned": f"{_WITHOUT_ZONE} - to_minutes({_OFFSET_MINUTES})",
    "duration": _SECONDS,
}
MEASURES: Final = {
    "whole": "max(length(regexp_extract({cell}, '^[+-]?([0-9]+)', 1)))",
    "digits": "max(length(regexp_replace({cell}, '[^0-9]', '', 'g')))",
    "points": r"max(length(regexp_extract({cell}, '\.([0-9]+)[^0-9]*$', 1)))",
    "commas": "max(length(regexp_extract({cell}, ',([0-9]+)[^0-9]*$', 1)))",
    "english_sure": rf"bool_or(regexp_matches({_BARE}, ',.*[,.]|\.([0-9]{{1,2}}|[0-9]{{4,}})$'))",
    "german_sure": rf"bool_or(regexp_matches({_BARE}, '\..*[,.]|,([0-9]{{1,2}}|[0-9]{{4,}})$'))",
    "french_sure": f"bool_or(regexp_matches({{cell}}, '[0-9][{_BLANKS}][0-9]'))"
    f" AND bool_or(regexp_matches({{cell}}, '[,{_BLANKS[1:]}]|{_UNIT}'))",
    "blanks": "bool_or(regexp_matches({cell}, '[0-9] [0-9]'))",
    "enclosed": r"bool_and(regexp_matches({cell}, '^\(|-$')) FILTER (WHERE {cell} IS NOT NULL)"
    f" AND NOT bool_or(regexp_matches({{cell}}, {_quoted(_MARKED)}))",
    "swiss_sure": f"bool_or(regexp_matches({{cell}}, {_quoted(f'[{_APOSTROPHES}]')}))",
    "triples": rf"bool_and({_is('[+-]?([1-9][0-9]{0,2}|[1-9][0-9]{0,2}[.][0-9]{3})')})"
    " FILTER (WHERE {cell} IS NOT NULL) AND bool_or({cell} LIKE '%.%')",
    "units": f"list_sort(array_agg(DISTINCT {_UNIT_OF}) FILTER (WHERE {{cell}} IS NOT NULL))[1:3]",
    "days_over_12": "bool_or(regexp_matches({cell}, '^(1[3-9]|[23][0-9])[/-]'))",
    "months_over_12": "bool_or(regexp_matches({cell}, '^[0-9]+[/-](1[3-9]|[23][0-9])[/-]'))",
    "short_years": r"bool_or(regexp_full_match({cell}, '..\...\...'))",
    "two_parts": "bool_or(regexp_full_match({cell}, '[^:]*:[^:]*'))",
    "long": "bool_or(regexp_matches({cell}, '^-?(2[4-9]|[3-9][0-9]|[0-9]{3,}):'))",
}
"""What is found besides of the cells of a column."""


def read_number(cell: str, shape: str, units: object, exact: str) -> str:
    """Return the expression that reads a number of a style, as exactly the type ``exact``."""
    bare = _BARE.replace("{cell}", cell)
    match shape:
        case "english":
            bare = f"replace({bare}, ',', '')"
        case "german":
            bare = f"replace(replace({bare}, '.', ''), ',', '.')"
        case "french":
            bare = f"replace({bare}, ',', '.')"
        case "swiss":
            bare = f"regexp_replace({bare}, {_quoted(f'[{_APOSTROPHES}]')}, '', 'g')"
    sign = f"(CASE WHEN regexp_matches({cell}, '[({_MINUS}-]') THEN -1 ELSE 1 END)"
    number = f"{sign} * CAST({bare} AS {exact})"
    return f"CAST({number} * 0.01 AS {exact})" if units == ["%"] else f"CAST({number} AS {exact})"


def note_of(name: str, shape: str, found: Mapping[str, Any]) -> str:
    """Return what a reader should know of how a column is read; empty for nothing."""
    units = "".join(found.get("units") or ()) if shape in STYLES else ""
    if shape == "duration":
        return f"{name}: durations, in seconds (1:30:00 is 5400)."
    if shape == "zoned":
        return f"{name}: moments with a time zone, in UTC."
    if units == "%":
        return f"{name}: percentages, as fractions (12.5% is 0.125)."
    if units:
        return f"{name}: amounts in {units}."
    if shape in ("day_first", "month_first"):
        return f"{name}: dates written {'day' if shape == 'day_first' else 'month'} first."
    if shape == "pointed_date" and found.get("short_years"):
        return f"{name}: dates with years of two digits (01.02.26 is 2026-02-01)."
    if shape:
        if shape == "decimal" and found.get("triples"):
            return f"{name}: the point is read as the decimal sign; it may separate thousands."
        return ""
    return _note_of_text(name, found)


def _note_of_text(name: str, found: Mapping[str, Any]) -> str:
    """The note on a column that looks like numbers, dates or durations and is kept as text."""
    if found.get("duration") and found.get("long"):
        return f"{name}: 75:30 may be minutes, hours or a score; kept as text."
    if found.get("enclosed") and any(found.get(style) for style in STYLES):
        return f"{name}: (1) and 1- may be negative numbers or labels; kept as text."
    if found.get("french") and found.get("blanks"):
        return f"{name}: digits with blanks between may be numbers or labels; kept as text."
    if found.get("english") or found.get("german"):
        if len(found.get("units") or ()) > 1:
            return f"{name}: amounts of several currencies, or with and without one; kept as text."
        return f"{name}: numbers that can be read in two ways, such as 1,234; kept as text."
    if found.get("day_first") and found.get("month_first"):
        return f"{name}: dates that can be read day first or month first; kept as text."
    return ""
