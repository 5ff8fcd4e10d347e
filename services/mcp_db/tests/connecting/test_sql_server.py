"""``bos connect`` with the double of SQL Server: all but making the role."""

import pytest
from connect_rig import Connect, read

from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.databases import open_backend
from bos_mcp_db.failures import QueryFailed
from bos_mcp_db.settings import McpDbSettings
from bos_sqlguard import GuardPolicy


async def test_tables_are_proposed_and_the_script_is_written(
    bos_connect: Connect, sql_server_url: str
) -> None:
    done = await bos_connect(sql_server_url)

    assert done.code == 0
    assert done.allowed == ["customers", "measures", "orders", "salaries"]
    script = (done.folder / "shop-role.sql").read_text()
    assert "CREATE LOGIN bos_reader" in script
    assert 'GRANT SELECT ON "dbo"."orders" TO "bos_reader"' in script
    assert "total_amount_of_orders" in read(done.metadata())["metrics"]
    assert done.settings["BOS_DATABASE_URL"].startswith("mssql://bos_reader@127.0.0.1:")
    assert "hush" not in done.shown + script


async def test_a_script_for_sql_server_is_not_applied(
    bos_connect: Connect, sql_server_url: str
) -> None:
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
