"""Unit tests: cells of mcp_db, answers without a model, card, settings, prompts."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from bos.agent.v1 import SideEffectClass
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import make_table, table_rows
from bos_errors import ConfigurationError, Internal
from bos_mcp_db import values as mcp_db_values
from bos_sql.agent import SqlAgent
from bos_sql.database.mcp import McpClient
from bos_sql.database.mcp_results import read_cell, read_table
from bos_sql.grounding.cache import MetadataIndexes
from bos_sql.grounding.schema_excerpt import GroundingPack
from bos_sql.settings import SqlSettings
from bos_sql.steps.filters import describe_filters
from bos_sql.steps.interpret import plain_answer, preview_text

CELLS = [
    None,
    True,
    42,
    9007199254740993,
    2**70,
    1.5,
    2.0,
    float("inf"),
    Decimal("1.10"),
    "text",
    b"\x00\xff",
    date(2026, 3, 31),
    datetime(2026, 3, 31, 10, 0, 0, 500000, tzinfo=UTC),
    ["a", 9007199254740993],
    {"n": Decimal("1.10"), "list": [None, True]},
]


def envelope(**changes: Any) -> dict[str, Any]:
    return {
        "success": True,
        "columns": ["n"],
        "column_types": ["int64"],
        "data": [[1]],
        "row_count": 1,
        "truncated": False,
        "error": None,
        **changes,
    }


@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_cells_of_mcp_db_are_decoded_without_loss(cell: Any) -> None:
    back = read_cell(mcp_db_values.encode(cell))

    assert back == cell
    assert type(back) is type(cell)


def test_a_moment_without_time_zone_is_utc() -> None:
    naive = datetime(2026, 3, 31, 10)  # noqa: DTZ001

    assert read_cell(mcp_db_values.encode(naive)) == naive.replace(tzinfo=UTC)


@pytest.mark.parametrize("wire", [{"$new": "1"}, {}, {"$int": 1}, {"$int": "1", "x": 2}])
def test_an_unknown_tag_is_refused(wire: Any) -> None:
    with pytest.raises(ValueError, match="tagged"):
        read_cell(wire)


def test_a_success_becomes_a_table() -> None:
    table = read_table(envelope(truncated=True))

    assert table_rows(table) == [{"n": 1}]
    assert table.row_count == 1
    assert table.truncated


@pytest.mark.parametrize(
    "changes",
    [
        {"success": False},
        {"success": 1},
        {"data": None},
        {"data": [[1, 2]]},
        {"data": [[{"$odd": "1"}]]},
        {"columns": ["n", "n"], "column_types": ["int64", "int64"], "data": [[1, 2]]},
        {"column_types": []},
    ],
    ids=str,
)
@pytest.mark.requirement("D-22")
def test_a_failure_or_invalid_data_is_no_table(changes: dict[str, Any]) -> None:
    with pytest.raises(Internal):
        read_table(envelope(**changes))
    with pytest.raises(Internal):
        read_table({"success": True})


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([], "No rows match (status = open): no data was found."),
        ([["Pune", Decimal("10.10")]], "city: Pune, total: 10.10."),
        ([[None, 0]], "city: no value, total: 0."),
        ([[None, None]], "There is no value for city, total (status = open): no data was found."),
        (
            [[f"c{n}", n] for n in range(5)],
            "5 rows with city, total: c0, 0; c1, 1; c2, 2; and 2 more.",
        ),
    ],
)
def test_plain_answer_of_a_result(rows: list[list[Any]], answer: str) -> None:
    assert plain_answer(make_table(["city", "total"], rows), "status = open") == answer


def test_answer_of_a_truncated_result_says_that_more_rows_exist() -> None:
    one, two = (make_table(["n"], rows, truncated=True) for rows in ([[1]], [[1], [2]]))

    assert plain_answer(one) == "n: 1. More rows exist than were read."
    assert plain_answer(two) == "2 rows with n: 1; 2. More rows exist than were read."


@pytest.mark.parametrize(
    ("columns", "rest"), [(8, ""), (9, ", and 1 more column"), (12, ", and 4 more columns")]
)
def test_columns_left_out_of_the_answer_are_counted(columns: int, rest: str) -> None:
    names = [f"c{n}" for n in range(columns)]
    one = make_table(names, [list(range(columns))])
    two = make_table(names, [list(range(columns))] * 2)
    empty = make_table(names, [[None] * columns])

    assert (
        plain_answer(one) == "c0: 0, " + ", ".join(f"c{n}: {n}" for n in range(1, 8)) + f"{rest}."
    )
    assert plain_answer(two).startswith(f"2 rows with {', '.join(names[:8])}{rest}: 0, 1, 2")
    assert f"{', '.join(names[:8])}{rest}: no data" in plain_answer(empty)


def test_truncated_texts_end_with_an_ellipsis() -> None:
    def answer(length: int, rows: int) -> str:
        return plain_answer(make_table(["t"], [["x" * length]] * rows))

    assert answer(200, 1) == f"t: {'x' * 200}."
    assert answer(201, 1) == f"t: {'x' * 200}…."
    assert answer(80, 2).startswith(f"2 rows with t: {'x' * 80}; ")
    assert answer(81, 2).startswith(f"2 rows with t: {'x' * 80}…; ")
    for length, mark in ((60, ""), (61, "…")):
        query = f"SELECT a FROM t WHERE s = '{'x' * length}'"
        assert describe_filters(query, "sqlite") == f"s = {'x' * 60}{mark}"
    cells = [["x" * 200], ["x" * 201], [["y" * 300]]]
    whole, cut, listed = preview_text(make_table(["t"], cells), 3)[0].splitlines()
    assert "…" not in whole
    assert cut == f'{{"t": "{"x" * 200}…"}}'
    assert listed.endswith("y…}")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM t", ""),
        (
            "SELECT a FROM t WHERE d >= '2026-01-01' AND d < '2026-04-01'",
            "d >= 2026-01-01, d < 2026-04-01",
        ),
        (
            "SELECT a FROM t WHERE t.d BETWEEN DATE '2026-01-01' AND DATE '2026-03-31'",
            "d from 2026-01-01 to 2026-03-31",
        ),
        ("SELECT a FROM t WHERE s = 'open' AND a <> 5", "s = open, a is not 5"),
        ("SELECT a FROM t WHERE s = 'open' OR a = 5", ""),
        ("SELECT a FROM t WHERE a = b", ""),
        ("SELECT a FROM t WHERE (t.a = -5) AND ((b > 2) AND c < 3)", "a = -5, b > 2, c < 3"),
        ("(SELECT a FROM t WHERE a = 5)", "a = 5"),
        ("SELECT a FROM t JOIN u ON t.a = u.a WHERE u.b = 5", "b = 5"),
        # All or nothing.
        ("SELECT a FROM t WHERE s = 'open' AND n LIKE 'A%'", ""),
        ("SELECT a FROM t WHERE s = 'open' AND (a = 5 OR a = 6)", ""),
        ("SELECT a FROM t WHERE s = 'open' AND NOT a = 5", ""),
        ("SELECT a FROM t WHERE s = 'open' AND a IS NULL", ""),
        ("SELECT a FROM t WHERE s = 'open' GROUP BY a HAVING COUNT(*) > 5", ""),
        ("SELECT a FROM t WHERE s = 'open' LIMIT 5 OFFSET 10", ""),
        ("SELECT a FROM t JOIN u ON t.a = u.a AND u.b = 5 WHERE s = 'open'", ""),
        (f"SELECT a FROM t WHERE {' AND '.join(f'a{n} = 1' for n in range(7))}", ""),
        # Filters of a subquery are not filters of the query.
        ("SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.s = 'open')", ""),
        ("SELECT a FROM t WHERE b = 1 AND a NOT IN (SELECT a FROM u WHERE s = 'open')", ""),
        ("SELECT n FROM (SELECT a AS n FROM t WHERE s = 'open') y WHERE n = 1", ""),
        ("WITH y AS (SELECT a FROM t WHERE s = 'open') SELECT a FROM y WHERE a = 1", ""),
        ("SELECT a FROM t WHERE s = 'open' UNION SELECT a FROM u WHERE s = 'paid'", ""),
        ("SELECT a, COUNT(*) FILTER (WHERE s = 'open') FROM t GROUP BY a", ""),
        ("no query (", ""),
    ],
)
def test_filters_are_described_completely_or_not_at_all(sql: str, expected: str) -> None:
    assert describe_filters(sql, "postgres") == expected


def test_the_preview_ends_with_a_whole_row_within_its_limits() -> None:
    table = make_table(["text", "n"], [["x" * 1000, n] for n in range(200)])

    preview, shown = preview_text(table, 200)

    assert len(preview) <= 4_500
    assert len(preview.splitlines()) == shown > 10
    assert preview.endswith("}")
    assert preview.startswith('{"text": "xxx')


def test_the_preview_is_json_in_column_order() -> None:
    row = ["a", 1.5, None, True, date(2026, 1, 2), [1, 2], {"k": "v"}]
    table = make_table(["z", "y", "x", "w", "v", "u", "t"], [row])

    assert preview_text(table, 5)[0] == (
        '{"z": "a", "y": 1.5, "x": null, "w": true, "v": "2026-01-02", "u": [1, 2],'
        ' "t": {"k": "v"}}'
    )
    assert preview_text(make_table(["n"], []), 5) == ("(no rows)", 0)


def test_the_schema_in_prompts_is_bounded() -> None:
    pack = GroundingPack(table_docs=("x" * 100, "y" * 100), join_docs=("a.b = c.d",))

    assert pack.text(1_000).endswith("Joins:\n  a.b = c.d")
    assert len(pack.text(50)) == 50


@pytest.mark.requirement("B-03", "A-08", "T-13", "R-06")
async def test_the_card_says_what_the_planner_needs() -> None:
    settings = SqlSettings.load(mcp_url="http://127.0.0.1:1/mcp")
    async with McpClient(settings.mcp_url, max_reply_bytes=2**20) as database:
        card = SqlAgent(
            settings, database, None, Telemetry.for_tests("sql"), MetadataIndexes(None, ttl_s=60)
        ).card

    assert list(card.aliases) == ["sql_agent"]
    assert list(card.keywords) == (
        "table tables list show top per group average sum count trend breakdown report".split()  # noqa: SIM905
    )
    assert card.selection_group == 2
    assert [tool.name for tool in card.tools] == ["mcp_db_schema", "mcp_db_query"]
    assert {tool.side_effect for tool in card.tools} == {SideEffectClass.SIDE_EFFECT_CLASS_NONE}
    assert not any(tool.requires_approval for tool in card.tools)
    assert list(card.downstream_audiences) == ["mcp_db", "file_tables"]
    assert card.default_timeout.ToTimedelta().total_seconds() == 60
    assert {"sql", "rows", "row_count"} <= {field.name for field in card.output_fields}


def test_the_address_of_mcp_db_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOS_SQL_MCP_URL", raising=False)

    with pytest.raises(ConfigurationError, match="BOS_SQL_MCP_URL"):
        SqlSettings.load()
