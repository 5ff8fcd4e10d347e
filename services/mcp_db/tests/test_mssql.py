"""The SQL Server adapter over a scripted session: which statements it sends, in which order.

These are unit tests at the driver's boundary. The statements are read by a T-SQL parser; they were
not run on SQL Server.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlglot
from mcp_db_rig import hostile
from sqlglot import exp

from bos_chassis.concurrency.fair_limiter import FairLimiter
from bos_errors import ConfigurationError
from bos_mcp_db.backends import mssql_schema
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.blocking import Clock
from bos_mcp_db.backends.mssql import _RIGHTS, _SESSION, _SHAPE, MssqlBackend
from bos_mcp_db.backends.mssql_driver import parse_address
from bos_mcp_db.backends.mssql_session import ServerError
from bos_mcp_db.backends.mssql_wire import ConnectionFailed
from bos_mcp_db.databases import Database, open_databases
from bos_mcp_db.envelope import result_envelope
from bos_mcp_db.failures import DatabaseBusy, DatabaseUnavailable, QueryFailed, QueryRefused
from bos_mcp_db.names import literal
from bos_mcp_db.provisioning import provision_mssql
from bos_mcp_db.samples import HiddenColumns, sample_values
from bos_mcp_db.settings import McpDbSettings
from bos_sqlguard import Guard, GuardPolicy

LIMITS = Limits(max_rows=2, max_columns=20, max_bytes=100_000, timeout_s=30)
ROLLBACK = "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"


class Script:
    """Sessions that record what they are sent and answer by a table: part of a batch to rows."""

    def __init__(self, answers: dict[str, Sequence[Sequence[Any]] | Exception]) -> None:
        self.answers = {"default_schema": [["dbo", 0]], **answers}
        self.batches: list[str] = []
        self.stopped = 0
        self.closed = 0
        self._rows: Iterator[Sequence[Any]] = iter(())

    @contextlib.contextmanager
    def __call__(self, clock: Clock) -> "Iterator[Script]":
        try:
            yield self
        finally:
            self.closed += 1

    def execute(self, sql: str) -> None:
        self.batches.append(sql)
        self._rows = iter(())
        for part, answer in self.answers.items():
            if part in sql:
                if isinstance(answer, Exception):
                    raise answer
                self._rows = iter(answer)
                return

    def row(self) -> Sequence[Any] | None:
        return next(self._rows, None)

    def rows(self) -> list[Sequence[Any]]:
        return list(self._rows)

    def allow(self, received: int) -> None:
        assert received > 0

    def stop(self, clock: Clock) -> None:
        assert not clock.is_over()
        self.stopped += 1


def shape(*columns: tuple[str | None, str]) -> dict[str, Any]:
    return {"first_result_set": [[name, kind, None, None] for name, kind in columns]}


def backend(script: Script) -> contextlib.AbstractAsyncContextManager[MssqlBackend]:
    return contextlib.aclosing(MssqlBackend(script, default_schema="dbo", threads=1))


async def test_a_query_runs_in_a_bounded_session_that_is_rolled_back() -> None:
    script = Script({**shape(("n", "int")), "FROM orders": [[1], [2], [3]]})

    async with backend(script) as adapter:
        result = await adapter.query("SELECT TOP 3 n FROM orders", LIMITS)

    assert (result.rows, result.truncated) == ([[1], [2]], True)
    session, begin, described, query, rollback = script.batches
    assert "SET LOCK_TIMEOUT 2000" in session
    assert "SET TRANSACTION ISOLATION LEVEL READ COMMITTED" in session
    assert "SET XACT_ABORT ON" in session
    assert "SET TEXTSIZE 200002" in session
    assert begin == "BEGIN TRANSACTION"
    assert "(N'SELECT TOP 3 n FROM orders', NULL, 0)" in described
    assert (query, rollback) == ("SELECT TOP 3 n FROM orders", ROLLBACK)
    assert (script.stopped, script.closed) == (1, 1)


async def test_a_failed_query_is_rolled_back_too() -> None:
    error = ServerError(8134, "Divide by zero error encountered.")
    script = Script({**shape(("n", "int")), "1 / 0": error})

    async with backend(script) as adapter:
        with pytest.raises(QueryFailed, match="Divide by zero") as caught:
            await adapter.query("SELECT 1 / 0", LIMITS)

    assert caught.value.sqlstate == "8134"
    assert script.batches[-1] == ROLLBACK
    assert script.closed == 1


async def test_a_lost_connection_is_a_database_that_cannot_be_reached() -> None:
    script = Script({**shape(("n", "int")), "FROM orders": ConnectionFailed()})

    async with backend(script) as adapter:
        with pytest.raises(DatabaseUnavailable):
            await adapter.query("SELECT n FROM orders", LIMITS)

    assert script.closed == 1


@pytest.mark.parametrize(
    ("answers", "error", "message"),
    [
        ({"default_schema": [["dbo", 1]]}, QueryFailed, "no read-only transactions"),
        ({"default_schema": [["private", 0]]}, QueryFailed, "DEFAULT_SCHEMA"),
        ({"first_result_set": []}, QueryFailed, "returns no rows"),
        (
            {"first_result_set": [[None, None, "Invalid object name 'x'.", 208]]},
            QueryFailed,
            "Invalid object name",
        ),
        (shape(*[(f"c{n}", "int") for n in range(21)]), QueryRefused, "columns"),
    ],
    ids=["may write", "another schema", "no rows", "invalid", "too wide"],
)
async def test_a_query_that_may_not_run_is_not_sent(
    answers: dict[str, Any], error: type[Exception], message: str
) -> None:
    script = Script(answers)

    async with backend(script) as adapter:
        with pytest.raises(error, match=message):
            await adapter.query("SELECT * FROM orders", LIMITS)

    assert "SELECT * FROM orders" not in script.batches


async def test_tables_are_not_described_to_a_login_that_may_write() -> None:
    async with backend(Script({"default_schema": [["dbo", 1]]})) as adapter:
        with pytest.raises(QueryFailed, match="provision_mssql"):
            await adapter.describe(["orders"])


@pytest.mark.parametrize(("cost", "runs"), [("12.5", True), ("1e+006", False)])
async def test_the_estimated_cost_is_asked_before_the_query_runs(cost: str, runs: bool) -> None:
    plan = f'<ShowPlanXML StatementText="&quot;" StatementSubTreeCost="{cost}" />'
    script = Script({**shape(("n", "int")), "FROM orders": [[plan]]})
    limits = Limits(max_rows=2, max_columns=5, max_bytes=9_999, timeout_s=30, max_estimated_cost=99)

    async with backend(script) as adapter:
        if runs:
            await adapter.query("SELECT n FROM orders", limits)
        else:
            with pytest.raises(QueryRefused) as caught:
                await adapter.query("SELECT n FROM orders", limits)
            assert caught.value.broken[0].rule == "TOO_EXPENSIVE"

    on, off = (script.batches.index(f"SET SHOWPLAN_XML {word}") for word in ("ON", "OFF"))
    assert script.batches[on : off + 1] == [
        "SET SHOWPLAN_XML ON",
        "SELECT n FROM orders",
        "SET SHOWPLAN_XML OFF",
    ]
    assert ("SELECT n FROM orders" in script.batches[off:]) == runs


async def test_a_plan_without_a_cost_is_refused() -> None:
    script = Script({**shape(("n", "int")), "FROM orders": [["<ShowPlanXML />"]]})
    limits = Limits(max_rows=2, max_columns=5, max_bytes=9_999, timeout_s=30, max_estimated_cost=99)

    async with backend(script) as adapter:
        with pytest.raises(QueryFailed, match="did not tell"):
            await adapter.query("SELECT n FROM orders", limits)


async def test_values_keep_their_types() -> None:
    cells: list[tuple[str, str, Any, Any]] = [
        ("bit", "bool", True, True),
        ("tinyint", "int64", 255, 255),
        ("bigint", "int64", 2**63 - 1, {"$int": "9223372036854775807"}),
        ("float", "double", 2.0, 2.0),
        ("decimal(12,2)", "decimal", Decimal("1.10"), {"$decimal": "1.10"}),
        ("money", "decimal", Decimal("9.9000"), {"$decimal": "9.9000"}),
        ("nvarchar(max)", "string", "größe", "größe"),
        ("varbinary(8)", "bytes", b"\x00\xff", {"$bytes": "AP8="}),
        ("date", "date", date(2026, 7, 1), {"$date": "2026-07-01"}),
        (
            "datetime2(7)",
            "timestamp",
            datetime(2026, 7, 1, 10),  # noqa: DTZ001
            {"$timestamp": "2026-07-01T10:00:00"},
        ),
        (
            "datetimeoffset(7)",
            "timestamp",
            datetime(2026, 7, 1, 10, tzinfo=UTC),
            {"$timestamp": "2026-07-01T10:00:00Z"},
        ),
        ("time(7)", "string", time(10, 30), "10:30:00"),
        ("uniqueidentifier", "string", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ("xml", "string", None, None),
    ]
    script = Script(
        {
            **shape(*[(None, declared) for declared, *_ in cells]),
            "FROM everything": [[value for _, _, value, _ in cells]],
        }
    )

    async with backend(script) as adapter:
        envelope = result_envelope(await adapter.query("SELECT * FROM everything", LIMITS), 1.0)

    assert envelope["column_types"] == [kind for _, kind, _, _ in cells]
    assert envelope["data"] == [[wire for *_, wire in cells]]


CATALOGUE: dict[str, Any] = {
    "FROM sys.objects": [
        [7, "dbo", "Orders", "U ", "Who bought what", 500],
        [8, "crm", "accounts", "V ", None, None],
        [9, "dbo", "ordérs", "U ", None, 1],  # equal by a collation only
    ],
    "FROM sys.columns": [
        [7, "order_id", "int", 4, 10, 0, False, None],
        [7, "amount", "decimal", 9, 12, 2, True, "In rupees"],
        [7, "note", "nvarchar", 100, 0, 0, True, None],
        [7, "code", "varchar", -1, 0, 0, True, None],
        [7, "at", "datetime2", 8, 27, 7, True, None],
        [8, "owner", "nvarchar", -1, 0, 0, True, None],
    ],
    "FROM sys.key_constraints": [
        [7, "PK", "pk_orders", "order_id"],
        [7, "UQ", "uq_orders", "note"],
        [7, "UQ", "uq_orders", "code"],
    ],
    "FROM sys.foreign_keys": [[7, "fk_owner", 8, "code", "owner"]],
}


async def test_metadata_comes_from_the_catalogue_views() -> None:
    script = Script(CATALOGUE)

    async with backend(script) as adapter:
        orders, accounts = await adapter.describe(["orders", "crm.accounts", "absent"])

    assert (orders.name, orders.kind, orders.row_estimate) == ("orders", "table", 500)
    assert (accounts.name, accounts.kind, accounts.row_estimate) == ("crm.accounts", "view", None)
    assert orders.comment == "Who bought what"
    assert [(c.name, c.type, c.nullable, c.is_text) for c in orders.columns] == [
        ("order_id", "int", False, False),
        ("amount", "decimal(12,2)", True, False),
        ("note", "nvarchar(50)", True, True),
        ("code", "varchar(max)", True, True),
        ("at", "datetime2(7)", True, False),
    ]
    assert orders.columns[1].comment == "In rupees"
    assert orders.primary_key == ["order_id"]
    assert orders.unique_keys == [["note", "code"]]
    (key,) = orders.foreign_keys
    assert (key.columns, key.table, key.references) == (["code"], "crm.accounts", ["owner"])
    assert "s.name = N'crm' AND o.name = N'accounts'" in script.batches[2]
    assert script.batches[-1] == ROLLBACK


async def test_names_of_tables_cannot_leave_their_literal() -> None:
    script = Script({})

    async with backend(script) as adapter:
        assert await adapter.describe(["o'; DROP TABLE x --"]) == []

    assert "o.name = N'o''; DROP TABLE x --'" in script.batches[2]


def database(script: Script, *tables: str) -> Database:
    policy = GuardPolicy("tsql", frozenset(tables))
    adapter = MssqlBackend(script, default_schema="dbo", threads=1)
    return Database(
        "main", "", tables, 3, LIMITS, Guard(policy), adapter, FairLimiter(2, 60, DatabaseBusy)
    )


async def test_samples_are_read_with_top() -> None:
    script = Script({**CATALOGUE, **shape(("note", "nvarchar")), "TOP (500)": [["x"], ["x"]]})
    shop = database(script, "orders", "crm.accounts")

    found = await shop.backend.describe(["orders"])
    samples = await sample_values(shop, found, HiddenColumns(["code"]))
    await shop.backend.aclose()

    assert 'SELECT TOP (500) "note" FROM "dbo"."orders"' in script.batches
    assert samples == {"orders": {"note": ["x"]}}


@pytest.mark.security
async def test_the_guard_is_always_on_in_front_of_sql_server() -> None:
    script = Script({})
    shop = database(script, "orders", "invoices", "customers", "products", "employees")
    statements = hostile("tsql")

    for statement in statements:
        with pytest.raises(QueryRefused):
            await shop.query(statement, LIMITS)
    await shop.backend.aclose()

    assert len(statements) >= 50
    assert script.batches == []


@pytest.mark.parametrize(
    "statement",
    [
        _RIGHTS,
        _SHAPE.format(query=literal("SELECT 'it''s'")),
        mssql_schema.TABLES.format(wanted="(s.name = N'dbo' AND o.name = N'orders')"),
        *(s.format(ids="1, 2") for s in (mssql_schema.COLUMNS, mssql_schema.KEYS)),
        mssql_schema.FOREIGN_KEYS.format(ids="1, 2"),
    ],
)
def test_own_queries_are_one_select_of_t_sql(statement: str) -> None:
    (tree,) = sqlglot.parse(statement, read="tsql")

    assert isinstance(tree, exp.Select)


def test_own_settings_and_transactions_are_t_sql() -> None:
    for line in [*_SESSION.format(text_size=9).splitlines(), "BEGIN TRANSACTION"]:
        (tree, *_) = sqlglot.parse(line, read="tsql")
        assert isinstance(tree, exp.Set | exp.Transaction), line


def test_provisioning_grants_only_reading_of_the_tables() -> None:
    script = provision_mssql("bos_reader", ["orders", "crm.accounts"])
    grants = [line for line in script.splitlines() if line.startswith("GRANT")]

    assert grants == [
        'GRANT SHOWPLAN TO "bos_reader";',
        'GRANT SELECT ON "dbo"."orders" TO "bos_reader";',
        'GRANT SELECT ON "crm"."accounts" TO "bos_reader";',
    ]
    assert 'DENY INSERT, UPDATE, DELETE TO "bos_reader";' in script
    for line in grants[1:]:
        (tree,) = sqlglot.parse(line, read="tsql")
        assert isinstance(tree, exp.Grant), line
    with pytest.raises(ValueError, match="must"):
        provision_mssql("r'; DROP TABLE x --", ["orders"])
    with pytest.raises(ValueError, match="must"):
        provision_mssql("bos_reader", [])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mssql://h/d", "mssql://user:password@host"),
        ("mssql://u:p@h", "mssql://user:password@host"),
        ("mssql://u:p@h:x/d", "port"),
        ("mssql://u:p@h/d?encrypt=maybe", "encrypt"),
        ("mssql://u:p@h/d?trust=yes", "encrypt"),
        ("mssql://u:p@h/d?ca_file=/absent.pem", "ca_file"),
    ],
)
async def test_unusable_addresses_name_the_fix(url: str, message: str) -> None:
    settings = McpDbSettings.load(database_url=url, database_allowed_tables="orders", databases={})

    with pytest.raises(ConfigurationError, match=message) as caught:
        async with open_databases(settings):
            pass

    assert "u:p" not in caught.value.message


def test_addresses_are_encrypted_unless_said_otherwise() -> None:
    plain = parse_address("sqlserver://u%40x:p%2Fw@db.example/shop?encrypt=no")
    secret = parse_address("mssql://u:p@db.example:1444/shop")

    assert (plain.user, plain.password(), plain.port) == ("u@x", "p/w", 1433)
    assert plain.tls is None
    assert secret.tls is not None
    assert secret.tls.check_hostname
    assert (secret.port, secret.database) == (1444, "shop")
    assert "p/w" not in repr(plain)
