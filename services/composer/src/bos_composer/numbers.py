"""Formatting of numbers by locale, with units only where they are declared. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from babel.core import Locale
from babel.numbers import format_currency, format_decimal, get_currency_precision

from bos.common.v1 import Value
from bos_chassis.values import render_value
from bos_llm.numbers.units import MONEY, PERCENT, is_currency, unit_in_name

# Rupees are written with Rs. in English, not with the locale's sign.
_RUPEE_PATTERN = "'Rs.'#,##,##0.00"
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Whole numbers that are identifiers or years have no separators: 2026, not 2,026.
_NAMING = frozenset(
    [
        "id",
        "year",
        "code",
        "number",
        "no",
        "zip",
        "pin",
        "phone",
        "key",
        "rank",
        "month",
        "day",
        "center",
        "centre",
        "postcode",
        "sku",
        "ean",
    ]
)
# Longer numbers are not grouped: it does not help readers, and the work grows with the digits.
_MAX_DIGITS = 60


class NumberFormat:
    """Formats amounts and other numbers for one locale.

    Args:
        locale: Such as ``en_IN``.
        currency: ISO 4217 code of columns that are declared as money without one; empty: those
            have no currency.
    """

    def __init__(self, locale: str, currency: str = "") -> None:
        self._locale = locale
        self._currency = currency
        pattern = Locale.parse(locale).decimal_formats[None].pattern
        self._two_decimals = re.sub(r"\.[#0]+", ".00", pattern)

    def money(self, amount: Decimal, currency: str) -> str:
        """An amount in ``currency``, an ISO 4217 code, such as ``Rs.1,75,206.00``."""
        if _is_unwieldy(amount):
            return f"{amount} {currency}"
        # Money is rounded half away from zero; the formatting library rounds half to even.
        cent = Decimal(1).scaleb(-get_currency_precision(currency))
        exact = amount.quantize(cent, ROUND_HALF_UP)
        if not exact:
            exact = amount or Decimal(0)  # a price below a cent is not zero; -0 is
        if currency == "INR" and self._locale.startswith("en"):
            return format_decimal(
                exact, format=_RUPEE_PATTERN, locale=self._locale, decimal_quantization=False
            )
        return format_currency(exact, currency, locale=self._locale, decimal_quantization=False)

    def number(self, value: Decimal) -> str:
        """A number with the locale's separators and its significant digits; two decimals stay."""
        if _is_unwieldy(value):
            return str(value)
        if value.as_tuple().exponent == -2:
            return format_decimal(value, format=self._two_decimals, locale=self._locale)
        return format_decimal(value, locale=self._locale, decimal_quantization=False)

    def cell(self, name: str, value: Value, unit: str = "") -> str:
        """Format a value for display.

        Args:
            name: Of its column or field; an ISO 4217 code in it declares the currency.
            value: The value.
            unit: Unit that its table declares, as in ``Column.unit``.
        """
        kind = value.WhichOneof("kind")
        words = {word.lower() for word in _WORD.findall(name)}
        text = plain(value)
        if kind not in ("int64_value", "double_value", "decimal_value"):
            return text
        try:
            number = Decimal(text)
        except ArithmeticError:
            return text
        if not number.is_finite():
            return text
        unit = unit or unit_in_name(name)
        unit = self._currency if unit == MONEY else unit
        if is_currency(unit):
            return self.money(number, unit)
        if kind == "int64_value" and words & _NAMING:
            return str(number)
        written = self.number(number)
        return f"{written}{unit}" if unit == PERCENT else f"{written} {unit}".rstrip()


def plain(value: Value) -> str:
    """The value as text; an invalid date, time or number becomes ``(unreadable)``."""
    try:
        return render_value(value)
    except (ValueError, OverflowError, ArithmeticError):
        return "(unreadable)"


def _is_unwieldy(number: Decimal) -> bool:
    return (
        not number.is_finite()
        or len(number.as_tuple().digits) > _MAX_DIGITS
        or (number != 0 and abs(number.adjusted()) > _MAX_DIGITS)
    )
