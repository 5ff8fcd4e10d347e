"""Cells of every type of DuckDB, against the text that DuckDB itself shows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from bos_chassis.values import to_value
from bos_files.queries.cells import decode
from bos_files.queries.limits import QueryLimits
from bos_files.queries.worker import connect, lock, run

LIMITS = QueryLimits(memory_mib=256, threads=1)

# Expressions whose cells are DuckDB's text.
AS_TEXT = """
'infinity'::date | '-infinity'::date | '0044-03-15 (BC)'::date | '12345-01-01'::date
'infinity'::timestamp | '-infinity'::timestamptz | '0044-03-15 (BC) 12:00'::timestamp
'12345-01-01 00:00+00'::timestamptz | '2026-01-01 00:00:00.123456789'::timestamp_ns
'24:00:00'::time | '12:00:00.5'::time | '12:00:00+02'::timetz | '12:00:00.123456789'::time_ns
INTERVAL '1 year 2 months 3 days 04:05:06' | INTERVAL '1000000 years' | INTERVAL '-1 day'
'101'::bit | 'a'::enum('a', 'b') | 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid
[DATE 'infinity', DATE '2026-01-01'] | {'at': TIMESTAMP '12345-01-01', 'n': 1}
MAP {'a': INTERVAL 1 month} | union_value(d := DATE '-infinity') | '山田' | chr(1) || 'x'
123456789012345678901234567890123456789012345678901234567890::bignum
"""
# Expressions, and their cells where these are no texts.
AS_VALUES: list[tuple[str, Any]] = [
    ("DATE '2026-02-28'", date(2026, 2, 28)),
    ("DATE '9999-12-31'", date(9999, 12, 31)),
    ("TIMESTAMP '0001-01-01 00:00:00'", datetime(1, 1, 1)),  # noqa: DTZ001
    ("TIMESTAMP_S '2026-03-08 02:30:00'", datetime(2026, 3, 8, 2, 30)),  # noqa: DTZ001
    ("TIMESTAMPTZ '2026-03-08 02:30:00.5+02'", datetime(2026, 3, 8, 0, 30, 0, 500_000, UTC)),
    ("1.1::float", 1.1),
    ("'-inf'::double", -math.inf),
    ("170141183460469231731687303715884105727::hugeint", 2**127 - 1),
    ("340282366920938463463374607431768211455::uhugeint", 2**128 - 1),
    ("1.10::decimal(38,2)", Decimal("1.10")),
    ("'\\xDE\\xAD'::blob", b"\xde\xad"),
    ("[1, NULL]", [1, None]),
    ("array_value(1.5::double, 2)", [1.5, 2.0]),
    ("{'a': [1], 'b': {'c': 'é'}}", {"a": [1], "b": {"c": "é"}}),
    ("MAP {1: 'x'}", {"1": "x"}),
    ("[{'k': 1.10::decimal(9,2)}]", [{"k": Decimal("1.10")}]),
    ("union_value(k := 1)", 1),
    ("'{\"a\": 1}'::json", '{"a": 1}'),
    ("NULL", None),
    ("current_setting('TimeZone')", "UTC"),
    ("CAST(TIMESTAMPTZ '2026-03-08 00:30:00+00' AS DATE)", date(2026, 3, 8)),
]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(connect(LIMITS)) as opened:
        lock(opened)
        yield opened


def cell_of(connection: duckdb.DuckDBPyConnection, expression: str) -> Any:
    reply = json.loads(json.dumps(run(connection, f"SELECT {expression} AS value", LIMITS)))
    assert "failed" not in reply, (expression, reply)
    value = decode(reply["rows"][0][0])
    is_naive = isinstance(value, datetime) and value.tzinfo is None
    to_value(value.replace(tzinfo=UTC) if is_naive else value)
    return value


def test_cells_are_what_duckdb_shows(connection: duckdb.DuckDBPyConnection) -> None:
    expressions = [each.strip() for line in AS_TEXT.split("\n") for each in line.split(" | ")]
    wrong = {}
    for expression in filter(None, expressions):
        row = connection.execute(f"SELECT CAST({expression} AS VARCHAR)").fetchone()
        shown = row[0] if row else None
        if (found := cell_of(connection, expression)) != shown:
            wrong[expression] = (found, shown)
    assert not wrong


def test_values_of_types_that_python_has(connection: duckdb.DuckDBPyConnection) -> None:
    found = {expression: cell_of(connection, expression) for expression, _ in AS_VALUES}
    assert {key: (value, type(value)) for key, value in found.items()} == {
        key: (value, type(value)) for key, value in AS_VALUES
    }
    assert math.isnan(cell_of(connection, "'nan'::double"))
    assert cell_of(connection, "reduce(range(30), lambda a, b: a + b)") == 435
    deep = "1"
    for _ in range(30):
        deep = f"[{deep}]"
    assert "[1]" in repr(cell_of(connection, deep))


def test_rows_keep_their_order_and_columns_their_names(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    sql = "SELECT DATE '2026-01-01' + i::integer AS d, i, i FROM range(500) t(i) ORDER BY i DESC"
    reply = run(connection, f"{sql} LIMIT 300;", LIMITS)
    assert reply["columns"] == ["d", "i", "i"]
    assert reply["types"] == ["date", "int64", "int64"]
    assert [row[1] for row in reply["rows"]][:3] == [499, 498, 497]
    ambiguous = run(connection, "SELECT [1] AS a, {'x': 1} AS b, MAP {'k': 1} AS c", LIMITS)
    assert ambiguous["types"] == ["structured"] * 3
