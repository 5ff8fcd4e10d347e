"""Money in generators: whole paise for exact sums; stored as rupees."""

from __future__ import annotations

from decimal import Decimal


def rupees(paise: int) -> Decimal:
    """Return whole paise as rupees with two decimals."""
    return Decimal(paise).scaleb(-2)


def paise(amount: Decimal) -> int:
    """Return rupees with at most two decimals as whole paise."""
    return int(amount.scaleb(2))


def round_to(value: float, step: int) -> int:
    """Return the multiple of `step` nearest to `value`, at least one step."""
    return max(step, round(value / step) * step)
