"""Sizes of the tables in the gateway's database, of all services that share it."""

from __future__ import annotations

from typing import Final

import asyncpg

from bos.gateway.v1 import GetStorageResponse, TableSize
from bos_postgres import fetch

_MOST_TABLES: Final = 200
# Sizes and names need no privilege on a table: rows of other services stay closed to this role.
_TABLES: Final = f"""
SELECT n.nspname AS schema, c.relname AS name, c.reltuples::bigint AS estimated_rows,
       pg_total_relation_size(c.oid) AS bytes, pg_indexes_size(c.oid) AS index_bytes,
       pg_database_size(current_database()) AS database_bytes
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY bytes DESC, schema, name LIMIT {_MOST_TABLES}
"""  # noqa: S608  our own text


async def storage_of(pool: asyncpg.Pool[asyncpg.Record]) -> GetStorageResponse:
    """The largest tables, and the whole database."""
    response = GetStorageResponse()
    for row in await fetch(pool, _TABLES):
        response.database_bytes = row["database_bytes"]
        response.tables.append(
            TableSize(
                schema=row["schema"],
                table=row["name"],
                estimated_rows=row["estimated_rows"],
                bytes=row["bytes"] or 0,
                index_bytes=row["index_bytes"] or 0,
            )
        )
    return response
