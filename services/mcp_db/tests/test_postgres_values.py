"""Cells of every type of PostgreSQL, against the text that the server itself shows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from bos_mcp_db.backends.postgres.values import cell, day, interval, moment, set_codecs
from bos_mcp_db.values import decode, encode

# Expressions whose cells are the server's text.
AS_TEXT = """
'infinity'::date | '-infinity'::date | '0044-03-15 BC'::date | '12345-01-01'::date
'5874897-12-31'::date
'infinity'::timestamp | '0044-03-15 12:00 BC'::timestamp | '12345-01-01 01:02:03.4'::timestamp
'-infinity'::timestamptz | '0044-03-15 12:00 BC'::timestamptz
'294276-12-31 23:59:59.999999+00'::timestamptz
'24:00'::time | '23:59:59.5'::time | '00:00'::time | '24:00:00+02'::timetz
'01:02:03.04-03:30'::timetz
'1 year 2 mons 3 days 04:05:06'::interval | '-1 day -02:00'::interval
 '-1 mons +3 days'::interval
'0'::interval | '1000000 years'::interval | '-1 year -0.5 seconds'::interval | 'infinity'::interval
'1 day -00:00:01'::interval | '-1 day 00:00:01'::interval
B'101' | B'' | '1'::bit varying | '$1,234.56'::money | '-0.5'::money
'[1,5)'::int4range | 'empty'::int4range | '(,3.5]'::numrange
'[2026-01-01 00:00+00,)'::tstzrange
'[2026-01-01 01:02:03.5,infinity)'::tsrange | '["0044-03-15 BC",2026-02-01)'::daterange
'{[1,3),[5,8)}'::int4multirange | '{}'::int4multirange | '(1,2.5)'::point | '(1e300,-0.1)'::point
'((0,0),(1,1))'::box | '((0,0),(1,1),(1,0))'::polygon | '{1,-1,0}'::line | '<(0,0),5>'::circle
'[(0,0),(1,1)]'::lseg | '[(0,0),(1,1)]'::path | '((0,0),(1,1))'::path
'192.168.0.1/24'::inet | '10.0.0.0/8'::cidr | '::1/64'::inet
'08:00:2b:01:02:03'::macaddr | '08:00:2b:01:02:03:04:05'::macaddr8
'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid | 'fat & cat'::tsquery | 'a b'::tsvector
'(0,1)'::tid | '42'::xid8 | '16/B374D848'::pg_lsn
 'nm'::name | 'ab'::char(10)
'{"山田"}'::text[]::text | '$.a'::jsonpath
"""
# Expressions, and their cells where these are no texts, or no texts of the server.
AS_VALUES: list[tuple[str, Any]] = [
    ("'2026-02-28'::date", date(2026, 2, 28)),
    ("'0001-01-01'::date", date(1, 1, 1)),
    ("'2026-03-08 02:30'::timestamp", datetime(2026, 3, 8, 2, 30)),  # noqa: DTZ001
    ("'9999-12-31 23:59:59.999999+00'::timestamptz",
     datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("1.1::real", 1.1),
    ("16777216::real", 16777216.0),
    ("'NaN'::real IS NULL", False),
    ("123456789012345.12345678901234567890::numeric",
     Decimal("123456789012345.12345678901234567890")),
    ("ARRAY['infinity'::date, '2026-01-01', NULL]", ["infinity", date(2026, 1, 1), None]),
    ("host('192.168.0.1'::inet)", "192.168.0.1"),
    ("ARRAY[ROW(1, 'x', NULL)]", ["(1,x,)"]),
    ("ARRAY[B'10', B'1'::varbit]", ["10", "1"]),
    ("ARRAY['[1,5)'::int4range]", ["[1,5)"]),
    ("ROW('infinity'::timestamp, '{\"a\": 1.10}'::jsonb, '24:00'::time)::odd",
     {"at": "infinity", "j": {"a": Decimal("1.10")}, "t": "24:00:00"}),
    ("ARRAY[ROW('2026-01-01'::timestamp, '[]'::jsonb, '00:00'::time)::odd]",
     [{"at": datetime(2026, 1, 1), "j": [], "t": "00:00:00"}]),  # noqa: DTZ001
    ("'{\"n\": 12345678901234567890}'::json", {"n": 12345678901234567890}),
    ("'\"\\ud800\"'::json", "�"),
    ("'{\"\\ud83d\\ude00\": \"é\"}'::json", {"😀": "é"}),
]  # fmt: skip


@pytest.fixture
async def session(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    connection = await asyncpg.connect(postgres_dsn, server_settings={"timezone": "UTC"})
    try:
        await set_codecs(connection)
        await connection.execute("CREATE TYPE odd AS (at timestamp, j jsonb, t time)")
        yield connection
    finally:
        await connection.close()


async def cell_of(session: asyncpg.Connection[Any], expression: str) -> Any:
    statement = await session.prepare(f"SELECT {expression}")
    (attribute,) = statement.get_attributes()
    found = cell(await statement.fetchval(), attribute.type.kind)
    wire = encode(found)
    json.dumps(wire).encode()
    assert found != found or decode(wire) in (found, str(found)), "what is sent is what was read"
    return found


async def test_cells_are_what_the_server_shows(session: asyncpg.Connection[Any]) -> None:
    expressions = [each.strip() for line in AS_TEXT.split("\n") for each in line.split(" | ")]
    wrong = {}
    for expression in filter(None, expressions):
        shown = await session.fetchval(f"SELECT ({expression})::text")
        if expression.endswith("::char(10)"):
            shown = f"{shown:10}"  # a cast to text drops the padding
        if str(found := await cell_of(session, expression)) != shown:
            wrong[expression] = (found, shown)
    assert not wrong


async def test_values_of_types_that_python_has(session: asyncpg.Connection[Any]) -> None:
    found = [await cell_of(session, expression) for expression, _ in AS_VALUES]
    assert found == [value for _, value in AS_VALUES]


async def test_days_moments_and_intervals_of_all_times(session: asyncpg.Connection[Any]) -> None:
    """Every 977th year that the server has, as the server shows it; no leap day is lost."""
    shown = await session.fetch(
        "SELECT d - DATE '2000-01-01' AS days, d::text AS day, d::timestamp::text AS moment "
        "FROM (SELECT make_date(y, m, 28) + 1 AS d FROM generate_series(-4712, 290000, 977) AS y,"
        " unnest(ARRAY[2, 12]) AS m WHERE y <> 0) AS all_days"
    )
    assert [str(day(row["days"])) for row in shown] == [row["day"] for row in shown]
    days_us = 86_400_000_000
    assert [str(moment(row["days"] * days_us)) for row in shown] == [row["moment"] for row in shown]
    parts = [(m, d, us) for m in (-25, 0, 12) for d in (-1, 0, 2) for us in (-1_500_000, 0, 1)]
    texts = await session.fetch(
        "SELECT make_interval(months => m, days => d, secs => s / 1e6)::text AS text"
        " FROM unnest($1::int[], $2::int[], $3::float8[]) AS t (m, d, s)",
        *zip(*parts, strict=True),
    )
    assert [interval(*each) for each in parts] == [row["text"] for row in texts]
