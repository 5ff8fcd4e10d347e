"""The two tools over HTTP with the real client: both live backends and the double of SQL Server."""

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from mcp_db_rig import POSTGRES_TABLES, call, postgres_database, running, sqlite_database

from bos_errors import ConfigurationError
from bos_mcp_db.settings import DatabaseSettings
from bos_mcp_db.values import decode

pytestmark = pytest.mark.requirement("D-08", "D-19", "D-20", "D-21")


Ask = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture
def ask(database: DatabaseSettings) -> Ask:
    """Calls one tool of a fresh service in front of the database."""

    async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
        async with running({"main": database}) as (client, _):
            return await call(client, tool, **arguments)

    return ask


async def test_a_query_returns_the_envelope(ask: Ask) -> None:
    envelope = await ask(
        "mcp_db_query",
        query="SELECT c.name, count(*) AS n FROM orders AS o JOIN customers AS c "
        "ON c.customer_id = o.customer_id GROUP BY c.name ORDER BY n DESC, c.name",
        database="main",
    )

    elapsed = envelope.pop("elapsed_ms")
    assert elapsed > 0
    assert envelope == {
        "success": True,
        "columns": ["name", "n"],
        "column_types": ["string", "int64"],
        "data": [["Mira", 167], ["Ravi", 167], ["Asha", 166]],
        "row_count": 3,
        "truncated": False,
        "error": None,
        "violations": [],
    }


@pytest.mark.requirement("D-16")
async def test_rows_beyond_the_limit_are_cut_and_said_so(ask: Ask) -> None:
    all_rows = await ask("mcp_db_query", query="SELECT order_id FROM orders")
    exact = await ask("mcp_db_query", query="SELECT order_id FROM orders LIMIT 200")
    fewer = await ask("mcp_db_query", query="SELECT order_id FROM orders", max_rows=3)
    more = await ask("mcp_db_query", query="SELECT order_id FROM orders", max_rows=100_000)

    assert (all_rows["row_count"], all_rows["truncated"]) == (200, True)
    assert (exact["row_count"], exact["truncated"]) == (200, False)
    assert (fewer["row_count"], fewer["truncated"]) == (3, True)
    assert (more["row_count"], more["truncated"]) == (200, True)


@pytest.mark.parametrize(
    ("query", "rule"),
    [
        ("SELECT 1; DROP TABLE orders", "KEYWORD"),
        ("SELECT * FROM salaries", "TABLE_NOT_ALLOWED"),
        ("SELECT * FROM orders", "TOO_MANY_COLUMNS"),
    ],
)
@pytest.mark.requirement("D-18")
async def test_a_refused_query_has_its_violations(ask: Ask, query: str, rule: str) -> None:
    envelope = await ask("mcp_db_query", query=query, max_cols=2)

    assert envelope["error"]["type"] == "QueryError"
    assert envelope["error"]["reason"] == "QUERY_REFUSED"
    assert rule in [violation["rule"] for violation in envelope["violations"]]
    assert envelope["error"]["message"].startswith("The query was refused: ")
    assert (envelope["success"], envelope["data"]) == (False, [])


async def test_error_of_the_database_is_passed_on_verbatim(ask: Ask) -> None:
    envelope = await ask("mcp_db_query", query="SELECT nope FROM orders")

    assert envelope["error"]["type"] == "QueryError"
    assert envelope["error"]["reason"] == "QUERY_FAILED"
    assert "nope" in envelope["error"]["message"]
    assert envelope["error"]["sqlstate"]
    assert envelope["violations"] == []


async def test_a_query_that_takes_too_long_is_stopped(ask: Ask) -> None:
    counting = "SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000"
    slow = f"WITH RECURSIVE n AS ({counting}) SELECT count(*) FROM n"

    envelope = await ask("mcp_db_query", query=slow, timeout_s=0.2)

    assert envelope["error"]["reason"] == "QUERY_TIMED_OUT"
    assert envelope["elapsed_ms"] < 2_500


async def test_an_empty_result_has_columns_of_unique_names(ask: Ask) -> None:
    query = "SELECT name, name, name FROM customers WHERE 1 = 0"
    envelope = await ask("mcp_db_query", query=query)

    assert (envelope["success"], envelope["data"]) == (True, [])
    assert envelope["columns"] == ["name", "name_2", "name_3"]


async def test_the_overview_lists_every_readable_table(ask: Ask) -> None:
    envelope = await ask("mcp_db_schema")

    tables = {table["name"]: table for table in envelope["tables"]}
    assert {"customers", "orders"} <= set(tables)
    assert not {"salaries", "secrets"} & set(tables)
    assert tables["orders"]["row_estimate"] == 500
    assert "columns" not in tables["orders"]
    assert envelope["limits"] == {"max_rows": 200, "max_columns": 50, "timeout_s": 30.0}


async def test_details_tell_columns_keys_and_samples(ask: Ask) -> None:
    envelope = await ask("mcp_db_schema", tables=["orders", "customers"])

    orders, customers = envelope["tables"]
    columns = {column["name"]: column for column in customers["columns"]}
    assert orders["primary_key"] == ["order_id"]
    assert orders["foreign_keys"] == [
        {"columns": ["customer_id"], "table": "customers", "references": ["customer_id"]}
    ]
    assert customers["unique_keys"] == [["city"]]
    assert columns["name"]["nullable"] is False
    assert columns["city"]["nullable"] is True
    assert set(columns["city"]["sample_values"]) == {"Pune", "Delhi", "Agra"}
    assert columns["customer_id"]["sample_values"] == []


async def test_wrong_arguments_are_refused(sqlite_file: Path) -> None:
    async with running({"main": sqlite_database(sqlite_file)}) as (client, _):
        unknown = await call(client, "mcp_db_query", query="SELECT 1", database="other")
        unlisted = await call(client, "mcp_db_schema", tables=["salaries"])
        reply = await client.call_tool("mcp_db_query", {"query": "SELECT 1", "max_rows": 0})

    assert unknown["error"]["type"] == "ConfigurationError"
    assert "main" in unknown["error"]["message"]
    assert (unlisted["error"]["reason"], unlisted["tables"]) == ("UNKNOWN_TABLE", [])
    assert reply.is_error
    assert reply.structured_content is None


async def test_tools_say_that_they_only_read(sqlite_file: Path) -> None:
    async with running({"main": sqlite_database(sqlite_file)}) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        info = client.server_info

    assert (info.name, info.version) == ("bos-mcp-db", version("bos-mcp-db"))
    assert set(tools) == {"mcp_db_schema", "mcp_db_query"}
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())


async def test_dec03_postgres_types_survive(reader_dsn: str) -> None:
    async with running({"main": postgres_database(reader_dsn)}) as (client, _):
        envelope = await call(client, "mcp_db_query", query="SELECT * FROM everything")

    row = dict(zip(envelope["columns"], map(decode, envelope["data"][0]), strict=True))
    assert str(row.pop("part")) == "nan"
    assert row == {
        "yes": True,
        "small": 7,
        "big": 9223372036854775807,
        "exact": Decimal("12345678901234567890.10"),
        "word": "größe",
        "raw": b"\x00\xff",
        "day": date(2025, 1, 31),
        "moment": datetime(2025, 1, 31, 4, 30, 0, 500_000, tzinfo=UTC),
        "local": datetime(2025, 1, 31, 10),  # noqa: DTZ001
        "span": "1 mon 3 days",
        "id": "00000000-0000-0000-0000-000000000001",
        "tags": ["a", "b"],
        "doc": {"n": Decimal("1.10"), "big": 9007199254740993, "list": [None, True]},
        "nothing": None,
    }
    assert " ".join(envelope["column_types"]) == (
        "bool int64 int64 double decimal string bytes date timestamp timestamp string string"
        " structured structured string"
    )


async def test_sqlite_types_survive(sqlite_file: Path) -> None:
    async with running({"main": sqlite_database(sqlite_file)}) as (client, _):
        envelope = await call(client, "mcp_db_query", query="SELECT * FROM measures")

    assert [decode(cell) for cell in envelope["data"][0]] == [
        "größe",
        9007199254740993,
        2.0,
        b"\x00\xff",
        None,
    ]
    assert envelope["column_types"] == ["string", "int64", "double", "bytes", "unspecified"]


async def test_postgres_comments_and_hidden_keys(reader_dsn: str) -> None:
    async with running({"main": postgres_database(reader_dsn)}) as (client, _):
        overview = await call(client, "mcp_db_schema")
        details = await call(client, "mcp_db_schema", tables=["customers", "orders"])

    assert {table["name"] for table in overview["tables"]} == set(POSTGRES_TABLES)
    customers, orders = details["tables"]
    assert customers["comment"] == "Who buys"
    assert customers["columns"][2]["comment"] == "Seat of the company"
    assert [column["type"] for column in orders["columns"]][2:] == [
        "integer",
        "numeric(12,2)",
        "mood",
    ]
    assert "secrets" not in str(details["tables"][1]["foreign_keys"])


async def test_several_databases_are_kept_apart(sqlite_file: Path, reader_dsn: str) -> None:
    databases = {"shop": sqlite_database(sqlite_file), "crm": postgres_database(reader_dsn)}
    async with running(databases) as (client, _):
        default = await call(client, "mcp_db_schema")
        accounts = await call(
            client, "mcp_db_query", query="SELECT owner FROM crm.accounts", database="crm"
        )
        elsewhere = await call(client, "mcp_db_query", query="SELECT owner FROM crm.accounts")

    assert (default["database"], default["dialect"]) == ("shop", "sqlite")
    assert accounts["data"] == [["Asha"]]
    assert elsewhere["error"]["reason"] == "QUERY_REFUSED"


async def test_the_byte_limit_truncates_and_refuses_a_huge_row(sqlite_file: Path) -> None:
    wide = "SELECT printf('%500d', order_id) FROM orders"
    huge = "SELECT printf('%999d', 1) || printf('%999d', 1) || printf('%999d', 1)"
    async with running({"main": sqlite_database(sqlite_file)}, max_bytes=2_000) as (client, _):
        cut = await call(client, "mcp_db_query", query=wide)
        refused = await call(client, "mcp_db_query", query=huge)

    assert (cut["success"], cut["truncated"], cut["row_count"]) == (True, True, 3)
    assert refused["error"]["reason"] == "RESULT_TOO_LARGE"


@pytest.mark.requirement("Q-03")
async def test_a_listed_table_that_is_not_there_prevents_start(sqlite_file: Path) -> None:
    database = sqlite_database(sqlite_file, allowed_tables=("orders", "ghosts"))

    with pytest.raises(ConfigurationError, match="no table ghosts"):
        async with running({"main": database}):
            pass


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:hunter2@127.0.0.1:1/x",
        "sqlite:////nowhere/at-all.db",
        "mssql://someone:hunter2@127.0.0.1:1/x?encrypt=no",
    ],
)
@pytest.mark.requirement("R-04")
async def test_an_absent_database_degrades_only_its_own_calls(url: str, sqlite_file: Path) -> None:
    databases = {
        "here": sqlite_database(sqlite_file),
        "gone": sqlite_database(sqlite_file, url=url),
    }
    async with running(databases) as (client, telemetry):
        gone = await call(client, "mcp_db_query", query="SELECT 1 FROM orders", database="gone")
        here = await call(client, "mcp_db_query", query="SELECT 1 FROM orders", database="here")

    assert gone["error"]["reason"] == "DATABASE_UNAVAILABLE"
    assert here["success"]
    assert "hunter2" not in str(gone) + str(telemetry.logs)
    assert "127.0.0.1:1" not in str(gone) + str(telemetry.logs)


async def test_refusals_are_counted_by_rule_and_queries_by_outcome(sqlite_file: Path) -> None:
    async with running({"main": sqlite_database(sqlite_file)}) as (client, telemetry):
        await call(client, "mcp_db_query", query="SELECT 1")
        await call(client, "mcp_db_query", query="DROP TABLE orders")

    def sample(name: str, **labels: Any) -> float | None:
        return telemetry.registry.get_sample_value(name, labels)

    assert sample("bos_db_guard_refusals_total", rule="KEYWORD") == 1
    assert sample("bos_db_queries_total", outcome="ok") == 1
    assert sample("bos_db_queries_total", outcome="query_refused") == 1
    assert [span.name for span in telemetry.spans] == ["mcp_db query"] * 2
    assert "DROP TABLE" not in str(telemetry.logs)
