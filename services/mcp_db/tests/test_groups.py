"""What a run token's groups may read: in lists, schemas, samples and queries, and by which role."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from mcp.client.client import Client
from mcp_db_rig import READER, Served, call, postgres_database, served, sqlite_database

from bos_chassis.auth.access import AccessSettings
from bos_errors import ConfigurationError
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.databases import open_databases
from bos_mcp_db.failures import QueryFailed
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings

GROUPS = {
    "sales": {"tables": {"main": ["orders"]}},
    "crm": {"tables": {"main": ["main.custom*"]}},
    "elsewhere": {"tables": {"other": ["*"]}},
}
ROLE = "bos_test_north"
NORTH = {"tables": {"main": ["customers", "orders"]}, "database_role": {"main": ROLE}}
WHOLE = {"tables": {"main": ["customers", "orders"]}}
LIMITS = Limits(max_rows=10, max_columns=10, max_bytes=10_000, timeout_s=20)


def access(groups: dict[str, Any]) -> AccessSettings:
    return AccessSettings.load(groups=groups, everybody={})


def service(
    database: DatabaseSettings, groups: dict[str, Any], **more: Any
) -> AbstractAsyncContextManager[Served]:
    return served({"main": database}, access=access(groups), **more)


async def listed(client: Client) -> tuple[set[str], str]:
    """The tables of the overview, and its fingerprint."""
    envelope = await call(client, "mcp_db_schema")
    return {each["name"] for each in envelope["tables"]}, envelope["fingerprint"]


async def fails(client: Client, tool: str, **arguments: Any) -> str:
    """The reason why the call fails."""
    envelope = await call(client, tool, **arguments)
    assert not envelope["success"]
    return str(envelope["error"]["reason"])


async def test_each_group_reads_its_own_tables_alone(sqlite_file: Path) -> None:
    async with (
        service(sqlite_database(sqlite_file), GROUPS) as running,
        running.client(groups=("sales",)) as sales,
        running.client(groups=("crm", "unheard-of")) as crm,
        running.client(groups=("sales", "crm")) as both,
    ):
        for _ in range(2):  # what one has asked is in no cache for the next
            assert (await listed(sales))[0] == {"orders"}
            assert (await listed(crm))[0] == {"customers"}
            assert (await listed(both))[0] == {"orders", "customers"}
        assert (await listed(sales))[1] != (await listed(both))[1]
        assert await fails(sales, "mcp_db_schema", tables=["customers"]) == "UNKNOWN_TABLE"
        described = await call(crm, "mcp_db_schema", tables=["customers"])
        (table,) = described["tables"]
        samples = {column["name"]: column["sample_values"] for column in table["columns"]}
        assert set(samples["name"]) == {"Asha", "Ravi", "Mira"}

        count = {"query": "SELECT count(*) FROM orders"}
        assert (await call(sales, "mcp_db_query", **count))["data"] == [[500]]
        assert await fails(crm, "mcp_db_query", **count) == "QUERY_REFUSED"
        joined = {"query": "SELECT c.name FROM customers c JOIN orders o USING (customer_id)"}
        assert await fails(sales, "mcp_db_query", **joined) == "QUERY_REFUSED"
        assert await fails(crm, "mcp_db_query", **joined) == "QUERY_REFUSED"
        assert (await call(both, "mcp_db_query", **joined))["success"]


async def test_users_without_tables_learn_nothing(sqlite_file: Path) -> None:
    async with service(sqlite_database(sqlite_file), GROUPS) as running:
        for groups in ((), ("unheard-of",), ("elsewhere",)):
            async with running.client(groups=groups) as other_client:
                for tool, arguments in (
                    ("mcp_db_schema", {}),
                    ("mcp_db_schema", {"database": "main", "tables": ["orders"]}),
                    ("mcp_db_query", {"query": "SELECT 1"}),
                ):
                    envelope = await call(other_client, tool, **arguments)
                    assert envelope["error"]["reason"] == "NOTHING_READABLE"
                    assert "orders" not in str(envelope)


async def test_a_database_without_a_readable_table_is_not_there(sqlite_file: Path) -> None:
    databases = {name: sqlite_database(sqlite_file) for name in ("main", "other")}
    settings = McpDbSettings.load(databases=databases, database_url=None, access=access(GROUPS))
    async with open_databases(settings) as found:
        assert found.get("", {"elsewhere"}).name == "other"
        assert found.get("", {"sales", "elsewhere"}).name == "main"
        with pytest.raises(Exception, match="configured: main"):
            found.get("other", {"sales"})


async def test_the_database_file_itself_keeps_to_the_group(sqlite_file: Path) -> None:
    main = {"main": sqlite_database(sqlite_file)}
    settings = McpDbSettings.load(databases=main, database_url=None, access=access(GROUPS))
    async with open_databases(settings) as databases:
        backend = databases.get("main", {"sales"}).backend
        assert (await backend.query("SELECT count(*) FROM orders", LIMITS)).rows == [[500]]
        with pytest.raises(QueryFailed):
            await backend.query("SELECT count(*) FROM customers", LIMITS)
        other = databases.get("main", {"crm"}).backend
        assert (await other.query("SELECT count(*) FROM customers", LIMITS)).rows == [[3]]


@pytest.fixture
async def north(postgres_admin: asyncpg.Connection) -> AsyncIterator[asyncpg.Connection]:
    """A role that reads one of three customers, and no orders; the reader may take it on."""
    await postgres_admin.execute(
        f"""
        CREATE ROLE {ROLE};
        GRANT {ROLE} TO {READER};
        GRANT USAGE ON SCHEMA public TO {ROLE};
        GRANT SELECT ON customers TO {ROLE};
        ALTER TABLE customers ENABLE ROW LEVEL SECURITY;
        CREATE POLICY north ON customers TO {ROLE} USING (city = 'Delhi');
        CREATE POLICY everything ON customers TO {READER} USING (true);
        """
    )
    yield postgres_admin
    await postgres_admin.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


@pytest.mark.usefixtures("north")
async def test_a_role_reads_for_its_group_and_is_given_back(reader_dsn: str) -> None:
    """One connection, so that the next caller gets the one that had the role."""
    groups = {"north": NORTH, "whole": WHOLE}
    database = postgres_database(reader_dsn)
    cities = {"query": "SELECT city FROM customers ORDER BY city"}
    async with (
        service(database, groups, pool_size=1) as running,
        running.client(groups=("north",)) as member,
        running.client(groups=("whole",)) as other,
        running.client(groups=("north", "whole")) as torn,
    ):
        for _ in range(2):
            assert (await call(member, "mcp_db_query", **cities))["data"] == [["Delhi"]]
            assert (await call(other, "mcp_db_query", **cities))["row_count"] == 3
        orders = {"query": "SELECT count(*) FROM orders"}
        assert await fails(member, "mcp_db_query", **orders) == "QUERY_FAILED"
        assert (await call(other, "mcp_db_query", **orders))["data"] == [[500]]
        seen = {}
        for name, client in (("north", member), ("whole", other)):
            tables = (await call(client, "mcp_db_schema", tables=["customers"]))["tables"]
            columns = {each["name"]: each["sample_values"] for each in tables[0]["columns"]}
            seen[name] = columns["city"]
        assert seen["north"] == ["Delhi"]
        assert len(seen["whole"]) == 3
        for tool in ("mcp_db_query", "mcp_db_schema"):
            arguments = cities if tool == "mcp_db_query" else {}
            assert await fails(torn, tool, **arguments) == "DATABASE_ROLES_CONFLICT"


@pytest.mark.usefixtures("north")
async def test_schemas_of_different_roles_are_separate(reader_dsn: str) -> None:
    """Under one fingerprint an agent would keep the sample values of one for the other."""
    table = {"tables": {"main": ["customers"]}}
    groups = {"north": {**table, "database_role": {"main": ROLE}}, "whole": table}
    async with (
        service(postgres_database(reader_dsn), groups) as running,
        running.client(groups=("north",)) as member,
        running.client(groups=("whole",)) as other,
    ):
        (seen, own), (known, others) = await listed(member), await listed(other)
        assert seen == known == {"customers"}
        assert own != others
        assert (await listed(member))[1] == own


@pytest.mark.usefixtures("north")
async def test_a_query_cannot_put_the_role_off(reader_dsn: str) -> None:
    async with (
        service(postgres_database(reader_dsn), {"north": NORTH}, pool_size=1) as running,
        running.client(groups=("north",)) as member,
    ):
        for query in (
            "RESET ROLE; SELECT city FROM customers",
            "SELECT set_config('role', 'none', true), city FROM customers",
            f"SET ROLE {READER}",
        ):
            assert await fails(member, "mcp_db_query", query=query) == "QUERY_REFUSED"


async def test_a_role_that_cannot_be_taken_on_ends_the_start(database: DatabaseSettings) -> None:
    with pytest.raises(ConfigurationError, match=f'BOS_ACCESS_GROUPS.*"?{ROLE}|{ROLE}"'):
        async with service(database, {"north": NORTH}):
            pass


async def test_a_revoked_database_role_reads_nothing(
    reader_dsn: str, north: asyncpg.Connection
) -> None:
    async with (
        service(postgres_database(reader_dsn), {"north": NORTH}, pool_size=1) as running,
        running.client(groups=("north",)) as member,
    ):
        await north.execute(f"REVOKE {ROLE} FROM {READER}")
        reason = await fails(member, "mcp_db_query", query="SELECT city FROM customers")
        assert reason == "DATABASE_ROLE_UNAVAILABLE"
