"""Uploaded files as the database 'files': each caller its own, behind the guard."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from file_tables_double import PLAN, SALES, FileTablesDouble, serving
from mcp.client.client import Client
from mcp_db_rig import Served, call, hostile, running, served, sqlite_database

from bos.files.v1 import FileTable, FileWithoutTable
from bos_chassis.auth.callers import generate_keypair
from bos_errors import (
    BosError,
    ConfigurationError,
    DeadlineExceeded,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from bos_mcp_db.values import decode

KEYS = generate_keypair()
TOTALS = "SELECT region, sum(amount) AS amount FROM sales GROUP BY region"


@dataclass
class Rig:
    """mcp_db beside a files service."""

    served: Served
    files: FileTablesDouble

    def client(self, user: str) -> AbstractAsyncContextManager[Client]:
        return self.served.client(user, audiences=["sql", "mcp_db", "file_tables"])

    async def call(self, user: str, tool: str, **arguments: Any) -> dict[str, Any]:
        async with self.client(user) as client:
            return await call(client, tool, **{"database": "files", **arguments})


@pytest.fixture
async def rig(sqlite_file: Path) -> AsyncIterator[Rig]:
    double = FileTablesDouble(KEYS[1], tables={"ada": (SALES, PLAN)})
    async with (
        serving(double) as address,
        served(sqlite_file, keys=KEYS, files_target=address) as service,
    ):
        yield Rig(service, double)


async def test_files_of_the_caller_are_listed_by_their_names(rig: Rig) -> None:
    rig.files.rejected = [FileWithoutTable(file="odd.csv", reason="it has no rows")]
    listed = await rig.call("ada", "mcp_db_schema")
    assert (listed["database"], listed["dialect"]) == ("files", "duckdb")
    assert listed["default_schema"] == "main"
    sales, plan = listed["tables"]
    assert sales == {
        "name": "sales",
        "kind": "table",
        "comment": "The uploaded file Sales.csv",
        "row_estimate": 2,
        "title": "Sales.csv",
    }
    assert plan["comment"] == "Sheet Targets of the uploaded file Plan 2025.xlsx"
    assert plan["title"] == "Plan 2025.xlsx / Targets"
    assert listed["rejected"] == [{"file": "odd.csv", "reason": "it has no rows"}]


async def test_tables_of_files_have_headings_and_frequent_values(rig: Rig) -> None:
    rig.files.columns, rig.files.rows = ("region",), [["North"], ["South"], ["North"]]
    described = await rig.call("ada", "mcp_db_schema", tables=["sales"])
    (table,) = described["tables"]
    assert [(each["name"], each["type"], each["comment"]) for each in table["columns"]] == [
        ("region", "varchar", "Region"),
        ("amount", "decimal(18,2)", ""),
    ]
    assert table["columns"][0]["sample_values"] == ["North", "South"]


async def test_rows_keep_their_types(rig: Rig) -> None:
    rig.files.columns = ("exact", "day", "moment", "whole", "part", "list", "yes", "nothing")
    rig.files.rows = [
        [
            Decimal("1.10"),
            date(2025, 1, 31),
            datetime(2025, 1, 31, 10, tzinfo=UTC),
            9007199254740993,
            1.5,
            [1, 2],
            True,
            None,
        ]
    ]
    reply = await rig.call("ada", "mcp_db_query", query=TOTALS)
    assert [decode(cell) for cell in reply["data"][0]] == list(rig.files.rows[0])
    assert reply["column_types"][:4] == ["decimal", "date", "timestamp", "int64"]


async def test_each_caller_has_the_tables_of_its_own_files_alone(rig: Rig) -> None:
    rig.files.tables["bob"] = (PLAN,)
    names = [each["name"] for each in (await rig.call("bob", "mcp_db_schema"))["tables"]]
    assert names == ["plan"]
    refused = await rig.call("bob", "mcp_db_query", query=TOTALS)
    assert refused["error"]["reason"] == "QUERY_REFUSED"
    assert [each["rule"] for each in refused["violations"]] == ["TABLE_NOT_ALLOWED"]
    described = await rig.call("bob", "mcp_db_schema", tables=["sales"])
    assert described["error"]["reason"] == "UNKNOWN_TABLE"
    assert rig.files.asked == []
    assert (await rig.call("ada", "mcp_db_query", query=TOTALS))["success"]
    assert [user for user, _ in rig.files.asked] == ["ada"]
    nothing = await rig.call("eve", "mcp_db_schema")
    assert (nothing["success"], nothing["tables"]) == (True, [])


async def test_equal_tables_of_two_users_have_different_fingerprints(rig: Rig) -> None:
    rig.files.tables["bob"] = (SALES, PLAN)
    ada = await rig.call("ada", "mcp_db_schema")
    assert ada["fingerprint"] == (await rig.call("ada", "mcp_db_schema"))["fingerprint"]
    assert ada["fingerprint"] != (await rig.call("bob", "mcp_db_schema"))["fingerprint"]


async def test_limits_of_the_caller_are_handed_on(rig: Rig) -> None:
    await rig.call("ada", "mcp_db_query", query=TOTALS, max_rows=3, max_cols=2)
    ((_, request),) = rig.files.asked
    assert (request.max_rows, request.max_columns) == (3, 2)
    assert request.max_bytes == 1_000_000


@pytest.mark.parametrize(
    ("failure", "reason", "kind"),
    [
        (InvalidArgument("no such column", reason="QUERY_FAILED"), "QUERY_FAILED", "QueryError"),
        (ResourceExhausted("memory", reason="QUERY_TOO_LARGE"), "QUERY_FAILED", "QueryError"),
        (InvalidArgument("damaged", reason="FILE_NOT_READABLE"), "QUERY_FAILED", "QueryError"),
        (PermissionDenied("no", reason="QUERY_REFUSED"), "QUERY_REFUSED", "QueryError"),
        (DeadlineExceeded("late", reason="QUERY_TIMED_OUT"), "QUERY_TIMED_OUT", "QueryError"),
        (ResourceExhausted("busy", reason="QUERIES_BUSY"), "DATABASE_BUSY", "QueryError"),
        (Unavailable("gone"), "DATABASE_UNAVAILABLE", "QueryError"),
        (Unauthenticated("who?"), "FILES_NOT_OPEN", "ConfigurationError"),
    ],
    ids=lambda each: each.reason if isinstance(each, BosError) else "",
)
async def test_failures_of_the_files_service_are_those_of_a_database(
    rig: Rig, failure: BosError, reason: str, kind: str
) -> None:
    rig.files.fails = failure
    reply = await rig.call("ada", "mcp_db_query", query=TOTALS)
    assert (reply["error"]["reason"], reply["error"]["type"]) == (reason, kind)


async def test_hostile_statements_do_not_reach_the_files_service(rig: Rig) -> None:
    tables = ("orders", "customers")
    rig.files.tables["ada"] = [
        FileTable(name=name, file=f"{name}.csv", columns=SALES.columns) for name in tables
    ]
    async with rig.client("ada") as client:
        for statement in hostile("duckdb")[::5]:
            reply = await call(client, "mcp_db_query", query=statement, database="files")
            assert reply["error"]["reason"] == "QUERY_REFUSED", statement
    assert rig.files.asked == []


async def test_files_need_a_files_service(rig: Rig, sqlite_file: Path) -> None:
    assert (await rig.call("ada", "mcp_db_schema", database=""))["database"] == "main"
    async with running({"main": sqlite_database(sqlite_file)}) as (client, _):
        reply = await call(client, "mcp_db_schema", database="files")
    assert reply["error"]["reason"] == "UNKNOWN_DATABASE"


async def test_a_configured_database_with_the_name_of_files_is_refused(sqlite_file: Path) -> None:
    database = {"files": sqlite_database(sqlite_file)}
    with pytest.raises(ConfigurationError, match="BOS_MCP_DB_FILES_TARGET"):
        async with running(database, files_target="127.0.0.1:1"):
            pass
