"""Formatting of numbers and amounts by locale and currency. Pure."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

from babel.numbers import (
    format_currency,
    format_decimal,
    get_currency_name,
    get_currency_precision,
)

from bos.common.v1 import Value
from bos_chassis.values import render_value

# Amounts are written with Rs. instead of the locale's rupee sign.
_RUPEE_PATTERN = "'Rs.'#,##,##0.00"
_EXAMPLE = Decimal("175206")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# A column holds money if a word of its name says so and no other word contradicts it.
_MONEY = frozenset(
    {
        "amount",
        "revenue",
        "turnover",
        "price",
        "cost",
        "salary",
        "wage",
        "balance",
        "budget",
        "fee",
        "tax",
        "spend",
        "spent",
        "paid",
        "payment",
        "outstanding",
        "profit",
        "margin",
        "money",
    }
)
_NOT_MONEY = frozenset(
    {
        "count",
        "number",
        "quantity",
        "qty",
        "share",
        "percent",
        "percentage",
        "pct",
        "ratio",
        "rate",
        "rank",
        "days",
        "id",
        "year",
    }
)
# Whole numbers that are identifiers or years have no separators: 2026, not 2,026.
_NAMING = frozenset(
    {"id", "year", "code", "number", "no", "zip", "pin", "phone", "key", "rank", "month", "day"}
)
# Longer numbers are not grouped: it does not help readers, and the work grows with the digits.
_MAX_DIGITS = 60


class NumberFormat:
    """Formats amounts and other numbers for one locale and currency.

    Args:
        locale: Such as ``en_IN``.
        currency: ISO 4217 code.
        pattern: Unicode number pattern of amounts; by default ``Rs.1,75,206.00`` for INR, and the
            locale's own for any other currency.
    """

    def __init__(self, locale: str, currency: str, pattern: str | None = None) -> None:
        self._locale = locale
        self._currency = currency
        self._pattern = pattern or (_RUPEE_PATTERN if currency == "INR" else None)
        self._cent = Decimal(1).scaleb(-get_currency_precision(currency))

    def money(self, amount: Decimal) -> str:
        """An amount in the deployment's currency, such as ``Rs.1,75,206.00``."""
        if _is_unwieldy(amount):
            return str(amount)
        # Money is rounded half away from zero; the formatting library rounds half to even.
        exact = amount.quantize(self._cent, ROUND_HALF_UP)
        if self._pattern is None:
            return format_currency(exact, self._currency, locale=self._locale)
        return format_decimal(exact, format=self._pattern, locale=self._locale)

    def number(self, value: Decimal) -> str:
        """A number with the locale's separators and its significant digits."""
        if _is_unwieldy(value):
            return str(value)
        return format_decimal(value, locale=self._locale, decimal_quantization=False)

    def cell(self, name: str, value: Value) -> str:
        """Format a value for display; the ``name`` of its column or field marks money."""
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
        if words & _MONEY and not words & _NOT_MONEY:
            return self.money(number)
        if kind == "int64_value" and words & _NAMING:
            return str(number)
        return self.number(number)

    @property
    def money_rule(self) -> str:
        """Instruction for the model on the format of amounts."""
        name = get_currency_name(self._currency, count=2, locale="en")
        example = self.money(_EXAMPLE)
        if self._currency == "INR" and self._pattern == _RUPEE_PATTERN:
            return f"Currency: {name} in the format `{example}` (not ₹ or INR)."
        return f"Currency: {name} in the format `{example}`."


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
