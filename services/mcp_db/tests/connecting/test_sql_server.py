"""``bos connect`` with a scripted SQL Server: all but making the role."""

from collections.abc import AsyncIterator

import pytest
from connect_rig import Connect, read
from tds_server import Rows, tds_server

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.databases import open_backend
from bos_mcp_db.failures import QueryFailed
from bos_mcp_db.settings import McpDbSettings
from bos_sqlguard import GuardPolicy

_OBJECT = ("object_id", "schema_name", "name", "type", "comment", "row_estimate")
_COLUMN = ("object_id", "name", "type_name", "max_length", "precision", "scale", "is_nullable", "c")
_CATALOGUE = {
    "default_schema": Rows(("default_schema", "may_write"), [["dbo", 0]]),
    "o.is_ms_shipped = 0": Rows(("schema_name", "name"), [["dbo", "orders"]]),
    "FROM sys.objects": Rows(_OBJECT, [[1, "dbo", "orders", "U ", None, 500]]),
    "FROM sys.columns": Rows(
        _COLUMN,
        [[1, "order_id", "int", 4, 10, 0, 0, None], [1, "amount", "decimal", 9, 12, 2, 1, None]],
    ),
    "FROM sys.key_constraints": Rows(
        ("parent_object_id", "type", "name", "column_name"), [[1, "PK", "pk_orders", "order_id"]]
    ),
    "FROM sys.foreign_keys": Rows(("parent_object_id", "name", "referenced", "column", "other")),
}


@pytest.fixture
async def sql_server_url() -> AsyncIterator[str]:
    def answer(batch: str) -> Rows:
        return next((rows for part, rows in _CATALOGUE.items() if part in batch), Rows())

    async with tds_server(answer) as server:
        yield f"mssql://reader:hush@127.0.0.1:{server.port}/shop?encrypt=no"


async def test_the_script_of_the_role_is_written(bos_connect: Connect, sql_server_url: str) -> None:
    done = await bos_connect(sql_server_url)

    assert done.code == 0
    assert done.allowed == ["orders"]
    script = (done.folder / "shop-role.sql").read_text()
    assert "CREATE LOGIN bos_reader" in script
    assert 'GRANT SELECT ON "dbo"."orders" TO "bos_reader"' in script
    assert "total_amount_of_orders" in read(done.metadata())["metrics"]
    assert done.settings["BOS_DATABASE_URL"].startswith("mssql://bos_reader@127.0.0.1:")
    assert "hush" not in done.shown + script


async def test_the_script_is_not_applied(bos_connect: Connect, sql_server_url: str) -> None:
    done = await bos_connect(sql_server_url, "--apply")

    assert done.code == 1
    assert "--apply is not for SQL Server" in done.shown
    assert done.files() == set()


async def test_a_connection_of_an_administrator_runs_no_query(sql_server_url: str) -> None:
    backend = open_backend(
        "connect",
        sql_server_url,
        GuardPolicy("tsql", frozenset()),
        McpDbSettings.load(databases={}, database_url=None),
        catalogue_only=True,
    )
    try:
        with pytest.raises(QueryFailed, match="catalogue alone"):
            await backend.query("SELECT 1 AS n", Limits(10, 10, 1_000, 5.0))
    finally:
        await backend.aclose()
