"""Rules of one dialect, both sides: columns like functions, and wide fields of formats."""

import pytest

from bos_sqlguard import Dialect, Guard

pytestmark = pytest.mark.security


def test_a_column_may_have_the_name_of_a_function(guards: dict[str, Guard]) -> None:
    """Both sides: what a row's column may be called, and how to reach one that may not."""
    guard = guards["postgres"]

    assert guard.check("SELECT o.lo_orderdate, o.version, o.length FROM orders AS o").is_safe
    assert guard.check("SELECT pg_count, record_out FROM orders").is_safe
    assert guard.check("SELECT o.pg_count FROM orders AS o").violations[0].detail == "o.pg_count"


_FULL = "SELECT o.a FROM orders AS o {} invoices AS i"
_MATCH = " ON i.a = o.a"
_READINGS: list[tuple[Dialect, str, str]] = [
    (
        "duckdb",
        "SELECT placed_on + INTERVAL 1 DAY, o.interval + 1, 1 AS interval FROM orders o",
        "",
    ),
    ("duckdb", "SELECT interval + 1 FROM orders", "RESERVED_WORD"),
    ("duckdb", "SELECT interval * 2 FROM orders", "RESERVED_WORD"),
    ("postgres", "SELECT interval, interval '1 day', '1 day'::interval + '1 h' FROM orders", ""),
    ("postgres", 'SELECT "interval" - amount FROM orders', ""),
    ("postgres", "SELECT interval - amount FROM orders", "RESERVED_WORD"),
    ("postgres", "SELECT interval + 1 FROM orders", "RESERVED_WORD"),
    ("postgres", "SELECT interval(3) '1 day' FROM orders", "RESERVED_WORD"),
    ("postgres", "SELECT interval ~ note FROM orders", "RESERVED_WORD"),
    ("sqlite", "SELECT interval, sum(interval), `interval` - 1 FROM orders", ""),
    ("sqlite", "SELECT interval - 1 FROM orders", "RESERVED_WORD"),
    ("sqlite", "SELECT interval - amount FROM orders", "RESERVED_WORD"),
    ("sqlite", "SELECT interval * 2 FROM orders", "RESERVED_WORD"),
    ("sqlite", "SELECT interval -> 'a' FROM orders", "RESERVED_WORD"),
    ("tsql", "SELECT interval - 1 AS n FROM orders", "RESERVED_WORD"),
    ("postgres", "SELECT DISTINCT ON (a) a, b FROM orders", ""),
    ("mysql", "SELECT DISTINCT ON (a) a, b FROM orders", "PARSE"),
    ("sqlite", "SELECT DISTINCT ON (a) a, b FROM orders", "PARSE"),
    ("tsql", "SELECT DISTINCT ON (a) a, b FROM orders", "PARSE"),
    ("sqlite", _FULL.format("FULL OUTER JOIN") + _MATCH, ""),
    ("mysql", _FULL.format("LEFT JOIN") + _MATCH, ""),
    ("mysql", _FULL.format("FULL JOIN") + _MATCH, "PARSE"),
    ("mysql", _FULL.format("NATURAL FULL JOIN"), "PARSE"),
    ("mysql", "WITH T AS (SELECT a FROM orders) SELECT a FROM T", ""),
    ("mysql", "WITH T AS (SELECT a FROM orders) SELECT a FROM t", "PARSE"),
    ("tsql", "WITH T AS (SELECT a FROM orders) SELECT a FROM t", "PARSE"),
    ("tsql", "WITH T AS (SELECT a FROM orders) SELECT a FROM s", "TABLE_NOT_ALLOWED"),
]


def test_what_the_server_reads_otherwise_is_a_mistake_to_correct(guards: dict[str, Guard]) -> None:
    failed = []
    for dialect, sql, rule in _READINGS:
        broken = guards[dialect].check(sql).violations
        # A message that was cut short no longer names the fix.
        if {each.rule for each in broken} != ({rule} - {""}) or "…" in str(broken):
            failed.append((dialect, sql, broken))

    assert failed == []


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
