"""Cases that hold in every tier."""

from datetime import UTC, date, datetime
from decimal import Decimal

from bos.sandbox.v1 import Limits

VALUES = [
    None,
    True,
    -(2**63),
    2**63 - 1,
    1.5,
    float("-inf"),
    Decimal("1.10"),
    Decimal("-1E-20"),
    Decimal(2**90),
    "",
    "text with ü, \x00 and \n",
    b"\x00\xff",
    date(2024, 2, 29),
    datetime(2025, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    {},
    [1, [2.0, None], {"a": Decimal("3.30"), "map": {"int": "5"}}],
]
"""A program that gets these returns them unchanged."""

LIMITS = [
    ("print('a' * 99)", Limits(output_bytes=100), 1),
    ("print('a' * 100)", Limits(output_bytes=100), 0),
    ("'x' * 1_000_000", None, 1),
    ("'x' * 1_100_000", None, 0),
    ("10 ** 4299", None, 1),
    ("10 ** 4300", None, 0),
]
"""Programs, the limits of the request, and whether they stay within all limits."""
