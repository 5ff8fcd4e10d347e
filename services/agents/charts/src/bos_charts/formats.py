"""Numbers, months and days as a locale writes them: for Vega-Lite, and for sentences. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from babel.core import Locale
from babel.dates import format_date
from babel.numbers import (
    format_currency,
    format_decimal,
    format_percent,
    get_currency_precision,
    get_currency_symbol,
)

from bos_charts.columns import Cell, Unit

# Amounts are written with Rs. instead of the locale's rupee sign.
_RUPEE, _RUPEE_PATTERN = "Rs.", "'Rs.'#,##,##0.00"
_FEW_DIGITS = Decimal(1000)
_TIME_FORMATS = {
    "day": "%d %b",
    "week": "%d %b",
    "month": "%b %Y",
    "quarter": "%b %Y",
    "year": "%Y",
}


@dataclass(frozen=True, slots=True)
class Formats:
    """Formats of one locale, and of the currency of one chart.

    Args:
        locale: Such as ``en_IN``.
        currency: ISO 4217 code of the chart's amounts; empty: it has none.
    """

    locale: str
    currency: str = ""

    def axis(self, unit: Unit) -> str:
        """d3-format of the numbers on an axis."""
        match unit:
            case Unit.MONEY:
                return "$,.2~f"
            case Unit.PERCENT:
                return ",.1~%"
            case Unit.SCIENTIFIC:
                return ".3~e"
            case _:
                return ",.4~f"

    def label(self, unit: Unit) -> str:
        """d3-format of a number beside its bar, with all digits that readers expect."""
        if unit is Unit.MONEY:
            return f"$,.{get_currency_precision(self.currency)}f"
        if unit is Unit.SCIENTIFIC:
            return self.axis(unit)
        return ",.2~%" if unit is Unit.PERCENT else ",.2~f"

    def number(self, value: float, unit: Unit) -> str:
        """A number within a sentence."""
        exact = Decimal(repr(value))
        if unit is Unit.SCIENTIFIC or exact.adjusted() > 15:
            return f"{value:.3g}"
        if unit is Unit.PERCENT:
            return format_percent(round(exact, 4), locale=self.locale, decimal_quantization=False)
        if unit is Unit.MONEY:
            cent = Decimal(1).scaleb(-get_currency_precision(self.currency))
            exact = exact.quantize(cent, ROUND_HALF_UP)
            if self.currency == "INR":
                return format_decimal(exact, format=_RUPEE_PATTERN, locale=self.locale)
            return format_currency(exact, self.currency, locale=self.locale)
        rounded = round(exact, 2 if abs(exact) < _FEW_DIGITS * 1000 else 0)
        return format_decimal(rounded, locale=self.locale, decimal_quantization=False)

    def position(self, cell: Cell, step: str) -> str:
        """A name or a day within a sentence or under a bar."""
        if not isinstance(cell, date):
            return str(cell)
        if step == "quarter":
            return f"Q{(cell.month + 2) // 3} {cell.year}"
        patterns = {"month": "MMM yyyy", "year": "yyyy"}
        return format_date(cell, patterns.get(step, "d MMM yyyy"), locale=self.locale)

    def time(self, step: str) -> str:
        """d3-time-format of an axis of days."""
        return _TIME_FORMATS.get(step, "%d %b %Y")

    @property
    def vega_locale(self) -> dict[str, Any]:
        """``config.locale`` of a specification, which makes it look the same everywhere."""
        return {"number": self._number_locale(), "time": self._time_locale()}

    def _number_locale(self) -> dict[str, Any]:
        locale = Locale.parse(self.locale)
        symbols = locale.number_symbols.get("latn") or {}
        pattern = locale.decimal_formats[None].pattern.split(";")[0]
        groups = [len(part) for part in pattern.split(".")[0].split(",")[1:]] or [3]
        groups.reverse()
        grouping = groups if len(groups) == 1 else [groups[0], *[groups[1]] * 9]
        symbol = get_currency_symbol(self.currency, locale=self.locale) if self.currency else ""
        before, after = (f"{symbol}", "")
        if not symbol:
            before = ""
        elif self.currency == "INR":
            before = _RUPEE
        elif locale.currency_formats["standard"].pattern.split(";")[0].strip().endswith("¤"):
            before, after = "", f"\u00a0{symbol}"
        return {
            "decimal": symbols.get("decimal", "."),
            "thousands": symbols.get("group", ","),
            "grouping": grouping,
            "currency": [before, after],
        }

    def _time_locale(self) -> dict[str, Any]:
        locale = Locale.parse(self.locale)
        months, days = locale.months["format"], locale.days["format"]
        alone = locale.months["stand-alone"]["abbreviated"]
        sunday_first = [6, 0, 1, 2, 3, 4, 5]
        return {
            "dateTime": "%x, %X",
            "date": "%d %b %Y",
            "time": "%H:%M:%S",
            "periods": ["AM", "PM"],
            "days": [days["wide"][day] for day in sunday_first],
            "shortDays": [days["abbreviated"][day] for day in sunday_first],
            "months": [months["wide"][month] for month in range(1, 13)],
            "shortMonths": [alone[month] for month in range(1, 13)],
        }
