"""The schema can be parted by tenant: docs/operations/beyond-one-postgresql.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_documents.service import migrate_store as migrate_documents
from bos_files.service import migrate_store as migrate_files
from bos_gateway.service import migrate_store as migrate_gateway
from bos_memory.service import migrate_store as migrate_memory
from bos_postgres import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

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
    for migrate in (migrate_gateway, migrate_memory, migrate_documents, migrate_files):
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
