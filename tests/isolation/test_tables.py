"""What the database itself knows about owners: a table that forgets it is found by its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_postgres import connect

if TYPE_CHECKING:
    from .isolation_harness import IsolationHarness

pytestmark = [pytest.mark.isolation, pytest.mark.asyncio(loop_scope="module")]

# Columns that say, by themselves or by what they refer to, whose a row is.
_OWNED = """
SELECT DISTINCT n.nspname || '.' || c.relname AS name, c.relrowsecurity AS is_secured
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'
      AND c.relkind IN ('r', 'p')
      AND a.attname IN ('user_id', 'run_id', 'session_id')
"""
_READERS = """
SELECT r.rolname FROM pg_roles AS r
WHERE r.rolname LIKE 'bos\\_%\\_reader' AND (r.rolsuper OR r.rolbypassrls OR r.rolcanlogin)
"""


async def test_every_table_with_an_owner_is_under_row_level_security(
    services: IsolationHarness,
) -> None:
    async with connect(services.dsn) as connection:
        tables = {row["name"]: row["is_secured"] for row in await connection.fetch(_OWNED)}
    assert {
        "gateway.runs",
        "gateway.run_events",
        "identity.users",
        "identity.sessions",
        "documents.chunks",
        "files.files",
        "files.versions",
    } <= {*tables}
    assert [name for name, is_secured in tables.items() if not is_secured] == []


async def test_reader_roles_cannot_bypass_row_level_security(services: IsolationHarness) -> None:
    async with connect(services.dsn) as connection:
        assert await connection.fetch(_READERS) == []
        assert await connection.fetchval(
            "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'bos\\_%\\_reader'"
        )
