"""Tables with an owner: under row-level security, and parted by tenant without a change.

See docs/operations/beyond-one-postgresql.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from bos_documents.service import migrate_store as migrate_documents
from bos_files.service import migrate_store as migrate_files
from bos_gateway.service import migrate_store as migrate_gateway
from bos_identity.service import migrate_store as migrate_identity
from bos_memory.service import migrate_store as migrate_memory
from bos_postgres import connect

pytestmark = [pytest.mark.isolation, pytest.mark.postgres]

ACCOUNT = "user_id"
RUN = "run_id"
"""Leads to the row of a run, which names the account, by a foreign key or without one."""
OF_A_CELL = {
    "gateway.cards": "by digest, the same in each cell",
    "gateway.replicas": "processes of the cell",
}
# Ids that are drawn at random, or digests.
RANDOM = {"run_id", "event_id", "approval_id", "webhook_id", "delivery_id", "conversation_key"}
RANDOM |= {"message_id", "summary_id", "document_id", "chunk_id", "file_id", "version_id"}
RANDOM |= {"query_id"}

_TABLES = """
SELECT n.nspname || '.' || c.relname AS name,
       array_agg(a.attname::text ORDER BY a.attnum) AS columns
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname IN ('gateway', 'memory', 'documents', 'files') AND c.relkind IN ('r', 'p')
      AND c.relname NOT LIKE 'audit\\_%' AND c.relname NOT LIKE '%migrations'
GROUP BY 1
"""
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
_UNIQUE = """
SELECT i.indrelid::regclass::text AS name,
       array_agg(a.attname::text ORDER BY a.attnum) AS columns
FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indisunique GROUP BY i.indexrelid, 1
"""
_REFERENCES = """
SELECT conrelid::regclass::text AS name, confrelid::regclass::text AS target
FROM pg_constraint WHERE contype = 'f'
"""


@pytest.fixture
async def session(
    empty_postgres_dsn: str,
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A database with the tables of every service that a cell has."""
    for migrate in (
        migrate_gateway,
        migrate_memory,
        migrate_documents,
        migrate_files,
        migrate_identity,
    ):
        await migrate(empty_postgres_dsn)
    async with connect(empty_postgres_dsn) as opened:
        yield opened


async def test_tables_can_be_parted_by_account(
    session: asyncpg.Connection[asyncpg.Record],
) -> None:
    tables = {row["name"]: set(row["columns"]) for row in await session.fetch(_TABLES)}
    parted = {name for name, columns in tables.items() if {ACCOUNT, RUN} & columns}
    assert parted >= {"gateway.runs", "gateway.run_events", "documents.chunks", "files.files"}
    assert tables.keys() - parted == OF_A_CELL.keys()
    colliding = [
        (row["name"], row["columns"])
        for row in await session.fetch(_UNIQUE)
        if row["name"] in parted and not {ACCOUNT, *RANDOM} & set(row["columns"])
    ]
    assert colliding == []
    leaving = [
        (row["name"], row["target"])
        for row in await session.fetch(_REFERENCES)
        if row["name"] in parted and row["target"] not in parted
    ]
    assert leaving == []


async def test_tables_with_an_owner_are_under_row_level_security(
    session: asyncpg.Connection[asyncpg.Record],
) -> None:
    tables = {row["name"]: row["is_secured"] for row in await session.fetch(_OWNED)}
    assert {"gateway.runs", "identity.sessions", "documents.chunks", "files.versions"} <= {*tables}
    assert [name for name, is_secured in tables.items() if not is_secured] == []
    assert await session.fetch(_READERS) == [], "reader roles that bypass it"
    known = "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'bos\\_%\\_reader'"
    assert await session.fetchval(known)
