"""Rules of one dialect, both sides: columns like functions, and wide fields of formats."""

import pytest

from bos_sqlguard import Guard

pytestmark = pytest.mark.security


def test_a_column_may_have_the_name_of_a_function(guards: dict[str, Guard]) -> None:
    """Both sides: what a row's column may be called, and how to reach one that may not."""
    guard = guards["postgres"]

    assert guard.check("SELECT o.lo_orderdate, o.version, o.length FROM orders AS o").is_safe
    assert guard.check("SELECT pg_count, record_out FROM orders").is_safe
    assert guard.check("SELECT o.pg_count FROM orders AS o").violations[0].detail == "o.pg_count"


@pytest.mark.parametrize(
    ("call", "is_safe"),
    [
        ("printf('%999d', 1)", True),
        ("printf('1000 of %d', 1)", True),
        ("printf('%d * %%1000', 1)", True),
        ("printf('%d of 1000', 1)", True),
        ("printf('%1000d', 1)", False),
        ("printf('%-+ #01000d', 1)", False),
        ("printf('%.1000f', 1)", False),
        ("printf('%%%1000d', 1)", False),
        ("printf('%*d', 1, 1)", False),
        ("printf('%d' || 'x', 1)", False),
        ("printf(note, 1)", False),
        ("printf()", False),
        ("format('%!1000s', 'x')", False),
    ],
)
def test_a_format_has_no_wide_field(call: str, is_safe: bool, guards: dict[str, Guard]) -> None:
    assert guards["sqlite"].check(f"SELECT {call} FROM orders").is_safe == is_safe
