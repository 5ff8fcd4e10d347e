"""Tables of files as steps reach them: by run token, each for its user, within limits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import grpc
import pytest

from bos.common.v1 import ColumnType
from bos.files.v1 import (
    FileTableServiceStub,
    ListFileTablesRequest,
    QueryFileTablesRequest,
)
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.settings import AuthSettings
from bos_chassis.values import table_rows
from bos_errors import InvalidArgument, PermissionDenied

from .file_tables import SALES, workbook
from .files_harness import ADA_KEY, Files

pytestmark = pytest.mark.process

PRIVATE, PUBLIC = generate_keypair()
TOTALS = "SELECT region, sum(amount) AS total FROM sales GROUP BY region ORDER BY region"
ENDLESS = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


class Steps:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = FileTableServiceStub(channel)
        self._signer = RunTokenSigner(PRIVATE)

    async def _call(self, method: str, request: Any, user: str) -> Any:
        audiences = ("sql", "mcp_db", "file_tables")
        token = self._signer.mint(user, "run-1", "run-1/0/1", audiences, 600.0)
        with translate_rpc_errors():
            call = getattr(self._stub, method)
            return await call(request, metadata=((RUN_TOKEN_KEY, token),), timeout=60)

    async def tables(self, user: str = "ada") -> Any:
        return await self._call("ListFileTables", ListFileTablesRequest(), user)

    async def query(self, sql: str, user: str = "ada", **limits: int) -> Any:
        request = QueryFileTablesRequest(sql=sql, **limits)
        return await self._call("QueryFileTables", request, user)


@pytest.fixture
def serving(start: Any) -> Any:
    """Start the service with the static key of a user, and the run tokens of steps."""

    async def serving(user: str = "ada", **settings: Any) -> tuple[Files, Steps]:
        auth = AuthSettings(
            static_key=ADA_KEY,
            static_key_user=user,
            run_token_public_keys=PUBLIC,
        )
        files: Files = await start(
            models=False, **{"auth": auth, "query_memory_mib": 256, **settings}
        )
        files.key = ADA_KEY
        return files, Steps(files.channel)

    return serving


async def test_uploaded_csv_and_workbook_are_listed_and_answer_a_query(serving: Any) -> None:
    files, steps = await serving()
    await files.upload("sales.csv", SALES)
    sheets = {"Targets": [["Region", "Goal"], ["North", 20]], "Old": [["Region"], ["South"]]}
    await files.upload("Plan 2025.xlsx", workbook(sheets))
    await files.upload("broken.parquet", b"no parquet")
    await files.upload("notes.txt", b"no table")
    listed = await steps.tables()
    assert [(each.name, each.file, each.sheet, each.row_count) for each in listed.tables] == [
        ("plan_2025_targets", "Plan 2025.xlsx", "Targets", 1),
        ("plan_2025_old", "Plan 2025.xlsx", "Old", 1),
        ("sales", "sales.csv", "", 3),
    ]
    assert [(each.name, each.type, each.title) for each in listed.tables[2].columns][:3] == [
        ("region", "VARCHAR", "Region"),
        ("amount", "DECIMAL(18,2)", "Amount"),
        ("sold_on", "DATE", "Sold on"),
    ]
    assert listed.tables[2].digest == (await files.get("sales.csv")).digest
    assert [each.file for each in listed.rejected] == ["broken.parquet"]
    reply = await steps.query(TOTALS)
    assert table_rows(reply.table) == [
        {"region": "North", "total": Decimal("11.50")},
        {"region": "South", "total": Decimal("3.25")},
    ]
    assert reply.table.columns[1].type == ColumnType.COLUMN_TYPE_DECIMAL
    assert list(reply.used_tables) == ["sales"]


async def test_a_step_reads_the_files_of_its_user_alone(serving: Any) -> None:
    files, steps = await serving()
    await files.upload("sales.csv", SALES)
    assert [each.name for each in (await steps.tables("ada")).tables] == ["sales"]
    assert not (await steps.tables("bob")).tables
    with pytest.raises(PermissionDenied) as refused:
        await steps.query(TOTALS, "bob")
    assert refused.value.reason == "QUERY_REFUSED"
    with pytest.raises(InvalidArgument) as failed:
        await steps.query("SELECT nothing FROM sales", "ada")
    assert failed.value.reason == "QUERY_FAILED"


async def test_the_current_version_is_read_and_a_deleted_file_is_gone(serving: Any) -> None:
    files, steps = await serving()
    await files.upload("sales.csv", SALES)
    await files.upload("sales.csv", b"region,amount\nWest,7\n")
    assert table_rows((await steps.query(TOTALS)).table) == [
        {"region": "West", "total": Decimal(7)}
    ]
    await files.delete("sales.csv")
    with pytest.raises(PermissionDenied):
        await steps.query(TOTALS)


async def test_callers_lower_limits_and_never_raise_them(serving: Any) -> None:
    files, steps = await serving()
    await files.upload("numbers.csv", b"n,m\n" + b"".join(b"%d,1\n" % n for n in range(11_000)))
    few = (await steps.query("SELECT n FROM numbers ORDER BY n", max_rows=2)).table
    assert (few.row_count, few.truncated) == (2, True)
    many = (await steps.query("SELECT n FROM numbers", max_rows=1_000_000)).table
    assert (many.row_count, many.truncated) == (10_000, True)
    short = (await steps.query("SELECT n FROM numbers", max_bytes=1_000)).table
    assert 0 < short.row_count < 100
    assert short.truncated
    with pytest.raises(PermissionDenied):
        await steps.query("SELECT n, m FROM numbers", max_columns=1)


async def test_repeated_columns_are_numbered_and_moments_are_in_utc(serving: Any) -> None:
    files, steps = await serving()
    await files.upload("log.csv", b"seen\n2025-01-31 10:00:00\n")
    table = (await steps.query("SELECT seen, seen FROM log")).table
    moment = datetime(2025, 1, 31, 10, tzinfo=UTC)
    assert table_rows(table) == [{"seen": moment, "seen_2": moment}]


async def test_queries_beyond_their_places_are_refused_and_counted(serving: Any) -> None:
    files, steps = await serving(max_queries=1, query_queue_timeout_s=0.05)
    await files.upload("sales.csv", SALES)
    await steps.tables()
    both = [asyncio.create_task(steps.query(f"{ENDLESS}, sales")) for _ in range(2)]
    refused, running = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    assert [each.exception().reason for each in refused] == ["QUERIES_BUSY"]
    for each in running:
        each.cancel()
    await asyncio.wait(running)
    counted = files.telemetry.registry.get_sample_value
    assert counted("bos_files_queries_total", {"outcome": "queries_busy"}) == 1


async def test_a_caller_that_gives_up_frees_its_place(serving: Any) -> None:
    files, steps = await serving(max_queries=1)
    await files.upload("sales.csv", SALES)
    await steps.tables()
    given_up = asyncio.create_task(steps.query(ENDLESS))
    queued = asyncio.create_task(steps.query(TOTALS))
    await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert (await queued).table.row_count == 2
