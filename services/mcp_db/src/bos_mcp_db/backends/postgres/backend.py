"""PostgreSQL: a read-only transaction per query, a statement timeout, rows through a portal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from copy import copy
from typing import TYPE_CHECKING, Any

import asyncpg

from bos_mcp_db.backends.backend import (
    MAX_LISTED,
    ColumnType,
    ForeignKey,
    Result,
    TableColumn,
    TableInfo,
)
from bos_mcp_db.backends.connect_causes import connect_cause
from bos_mcp_db.backends.postgres.plan import kept_bytes
from bos_mcp_db.backends.postgres.values import cell, set_codecs
from bos_mcp_db.backends.rows import RowCollector, check_columns, check_cost, check_kept
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed, QueryTimedOut, RoleUnavailable
from bos_mcp_db.names import quote, split_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from bos_mcp_db.backends.backend import Limits, TableName
    from bos_sqlguard import Dialect, Kept

_ROWS_PER_FETCH = 200
_CONNECT_TIMEOUT_S = 5.0
_CATALOG_TIMEOUT_S = 10.0
# The server stops the query; the client only steps in if the server does not answer.
_CLIENT_SLACK_S = 2.0
_RESET_TIMEOUT_S = 5.0

_GOING_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
)

_ASYNCPG_FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

_TYPES: dict[str, ColumnType] = {
    "bool": "bool",
    "int2": "int64",
    "int4": "int64",
    "int8": "int64",
    "oid": "int64",
    "float4": "double",
    "float8": "double",
    "numeric": "decimal",
    "bytea": "bytes",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "json": "structured",
    "jsonb": "structured",
}

# Partitions are read through their table; what an extension brings is its own affair.
_LISTED = f"""
SELECT n.nspname AS schema, c.relname AS name
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname::text, 'pg_')
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
  AND NOT EXISTS (SELECT FROM pg_depend AS d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname, c.relname
LIMIT {MAX_LISTED + 1}
"""  # noqa: S608  a number of ours

_VIEW_SOURCES = """
WITH RECURSIVE direct AS (
    SELECT v.oid AS view, d.refobjid AS source
    FROM pg_class AS v
    JOIN pg_rewrite AS r ON r.ev_class = v.oid
    JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                       AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> v.oid
    WHERE v.relkind IN ('v', 'm')
), reads AS (
    SELECT view, source FROM direct
    UNION
    SELECT reads.view, direct.source FROM reads JOIN direct ON direct.view = reads.source
)
SELECT vn.nspname AS view_schema, v.relname AS view, sn.nspname AS schema, s.relname AS name
FROM pg_class AS v
JOIN pg_namespace AS vn ON vn.oid = v.relnamespace
LEFT JOIN reads ON reads.view = v.oid
LEFT JOIN pg_class AS s ON s.oid = reads.source
LEFT JOIN pg_namespace AS sn ON sn.oid = s.relnamespace
WHERE v.relkind IN ('v', 'm')
  AND vn.nspname <> 'information_schema' AND NOT starts_with(vn.nspname::text, 'pg_')
"""

_TABLES = """
SELECT c.oid::bigint AS oid, n.nspname AS schema, c.relname AS name, c.relkind::text AS kind,
       c.reltuples::bigint AS row_estimate,
       coalesce(obj_description(c.oid, 'pg_class'), '') AS comment
FROM unnest($1::text[], $2::text[]) AS wanted(schema, name)
JOIN pg_namespace AS n ON n.nspname = wanted.schema
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = wanted.name
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""

_COLUMNS = """
SELECT a.attrelid::bigint AS oid, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       NOT a.attnotnull AS nullable, coalesce(col_description(a.attrelid, a.attnum), '') AS comment,
       t.typcategory IN ('S', 'E') AS is_text
FROM pg_attribute AS a
JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = ANY ($1::bigint[]::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attrelid, a.attnum
"""

_KEYS = """
SELECT k.conrelid::bigint AS oid, k.contype::text AS kind, k.confrelid::bigint AS target,
       ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS part(number, place)
             JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = part.number
             ORDER BY part.place) AS columns,
       ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS part(number, place)
             JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = part.number
             ORDER BY part.place) AS referenced
FROM pg_constraint AS k
WHERE k.conrelid = ANY ($1::bigint[]::oid[]) AND k.contype IN ('p', 'u', 'f')
ORDER BY k.conrelid, k.contype, k.conname
"""


class PostgresBackend:
    """Adapter for PostgreSQL; connects on first use."""

    dialect: Dialect = "postgres"

    def __init__(
        self,
        dsn: str,
        *,
        default_schema: str,
        pool_size: int,
        work_mem_kib: int = 16_384,
        password: Callable[[], str] | None = None,
    ) -> None:
        """Remember ``dsn``; it is never shown to callers. ``password`` is asked by connections."""
        self.default_schema = default_schema
        self._work_mem_kib = work_mem_kib
        self._pool = asyncpg.create_pool(
            dsn,
            password=password,
            min_size=0,
            max_size=pool_size,
            timeout=_CONNECT_TIMEOUT_S,
            # A transaction pooler in between breaks cached statements.
            statement_cache_size=0,
            init=set_codecs,
            reset=_nothing_to_reset,
            server_settings={
                "application_name": "bos-mcp-db",
                "default_transaction_read_only": "on",
                # Names must resolve as the guard resolved them; temporary tables come last.
                "search_path": f"{quote(default_schema)}, pg_temp",
                "standard_conforming_strings": "on",
                "timezone": "UTC",
                "lock_timeout": "2s",
                "idle_in_transaction_session_timeout": "60s",
            },
        )
        self._opening = asyncio.Lock()
        self._is_open = False
        self._role = ""
        self._whole = self
        self._resets: set[asyncio.Task[None]] = set()

    def reading(self, tables: Sequence[str], role: str) -> PostgresBackend:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        part = copy(self)
        part._role = role
        return part

    async def query(self, sql: str, limits: Limits, kept: Kept | None = None) -> Result:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        try:
            async with (
                asyncio.timeout(limits.timeout_s + _CLIENT_SLACK_S),
                self._read_only(limits.timeout_s) as connection,
            ):
                return await _fetch(connection, sql, limits, kept)
        except (TimeoutError, asyncpg.QueryCanceledError):
            raise QueryTimedOut(limits.timeout_s) from None

    async def listed(self) -> list[TableName]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        async with self._catalogue() as connection:
            return [(row["schema"], row["name"]) for row in await connection.fetch(_LISTED)]

    async def view_sources(self) -> Mapping[TableName, frozenset[TableName]]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        found: dict[TableName, set[TableName]] = {}
        async with self._catalogue() as connection:
            for row in await connection.fetch(_VIEW_SOURCES):
                view = found.setdefault((row["view_schema"], row["view"]), set())
                if row["name"] is not None:
                    view.add((row["schema"], row["name"]))
        return {view: frozenset(sources) for view, sources in found.items()}

    async def describe(self, tables: Sequence[str]) -> list[TableInfo]:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        wanted = {split_table(entry, self.default_schema): entry for entry in tables}
        schemas, names = [key[0] for key in wanted], [key[1] for key in wanted]
        async with self._catalogue() as connection:
            found = await connection.fetch(_TABLES, schemas, names)
            oids = [row["oid"] for row in found]
            columns = await connection.fetch(_COLUMNS, oids)
            keys = await connection.fetch(_KEYS, oids)
        entries = {row["oid"]: wanted[(row["schema"], row["name"])] for row in found}
        by_name = {entries[row["oid"]]: _table(row, columns, keys, entries) for row in found}
        return [by_name[entry] for entry in tables if entry in by_name]

    async def aclose(self) -> None:
        """See :class:`~bos_mcp_db.backends.backend.Backend`."""
        if self._is_open:
            self._pool.terminate()
            await asyncio.gather(*self._resets, return_exceptions=True)

    @asynccontextmanager
    async def _catalogue(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        try:
            async with (
                asyncio.timeout(_CATALOG_TIMEOUT_S + _CLIENT_SLACK_S),
                self._read_only(_CATALOG_TIMEOUT_S) as connection,
            ):
                yield connection
        except (TimeoutError, asyncpg.QueryCanceledError):
            raise QueryTimedOut(_CATALOG_TIMEOUT_S) from None

    @asynccontextmanager
    async def _read_only(self, timeout_s: float) -> AsyncIterator[PoolConnectionProxy[Any]]:
        """A connection inside a read-only transaction that is always rolled back."""
        connection = await self._acquire()
        try:
            milliseconds = max(1, int(timeout_s * 1000))
            # In one request, and not by asyncpg's transactions, of which one that is cancelled
            # while it begins or ends is left open. Workers in parallel would each hold as much
            # memory again.
            await connection.execute(
                "BEGIN READ ONLY;"
                f"SET LOCAL statement_timeout = {milliseconds};"
                f"SET LOCAL work_mem = {self._work_mem_kib};"
                "SET LOCAL max_parallel_workers_per_gather = 0"
            )
            if self._role:
                await self._take_role(connection)
            yield connection
        except asyncpg.QueryCanceledError:
            raise
        except _GOING_AWAY:
            raise DatabaseUnavailable from None
        except asyncpg.PostgresError as error:
            raise QueryFailed(_explain(error), getattr(error, "sqlstate", "") or "") from None
        except (asyncpg.InternalClientError, asyncpg.InterfaceError):
            # Either is raised for a type that asyncpg cannot read, and for a session that has
            # ended: the former when it was cancelled while it asked nothing.
            if _is_closed(connection):
                raise DatabaseUnavailable from None
            raise QueryFailed("The query has a value of a type that cannot be read.") from None
        except OSError:
            raise DatabaseUnavailable from None
        finally:
            await self._give_back(connection)

    async def _give_back(self, connection: PoolConnectionProxy[Any]) -> None:
        """Roll back and reset the session for the next query, also where the caller gave up.

        In a task of its own: a scope of anyio, as the MCP server has one around each call, cancels
        every wait of a caller that hung up, that for the rollback included.
        """
        reset = asyncio.create_task(self._reset(connection), name="mcp_db reset")
        self._resets.add(reset)
        reset.add_done_callback(self._resets.discard)
        await asyncio.shield(reset)

    async def _reset(self, connection: PoolConnectionProxy[Any]) -> None:
        """A session that ends meanwhile, or that cannot be reset, is replaced by the pool."""
        with suppress(*_ASYNCPG_FAILURES):
            try:
                await connection.execute(
                    f"ROLLBACK; {connection.get_reset_query()}", timeout=_RESET_TIMEOUT_S
                )
            except BaseException:
                connection.terminate()
                raise
            finally:
                await self._pool.release(connection)

    async def _take_role(self, connection: PoolConnectionProxy[Any]) -> None:
        """Read with the rights of the role; the end of the transaction gives it back."""
        try:
            await connection.execute(f"SET LOCAL ROLE {quote(self._role)}")
        except (asyncpg.InvalidParameterValueError, asyncpg.InsufficientPrivilegeError):
            raise RoleUnavailable from None

    async def _acquire(self) -> PoolConnectionProxy[Any]:
        try:
            whole = self._whole
            async with whole._opening:
                if not whole._is_open:
                    await self._pool
                    whole._is_open = True
            return await self._pool.acquire(timeout=_CONNECT_TIMEOUT_S)
        except (ValueError, *_ASYNCPG_FAILURES) as error:
            # Such errors name hosts, users and databases.
            raise DatabaseUnavailable(connect_cause(error)) from None


async def _fetch(
    connection: PoolConnectionProxy[Any], sql: str, limits: Limits, kept: Kept | None
) -> Result:
    statement = await connection.prepare(sql)
    attributes = statement.get_attributes()
    if not attributes:
        raise QueryFailed("The statement returns no rows; only SELECT queries are run.")
    check_columns(len(attributes), limits)
    if limits.max_estimated_cost is not None:
        plan = await _plan(connection, sql)
        check_cost(float(plan["Total Cost"]), limits)
    if limits.max_kept_bytes is not None and kept is not None:
        check_kept(kept_bytes(await _plan(connection, kept.query), kept), limits)
    cursor = await statement.cursor()
    collector = RowCollector(limits)
    kinds = [attribute.type.kind for attribute in attributes]
    while collector.wanted > 0:
        asked = min(collector.wanted, _ROWS_PER_FETCH)
        batch = await cursor.fetch(asked)
        collector.add(
            [cell(value, kind) for value, kind in zip(row.values(), kinds, strict=True)]
            for row in batch
        )
        if len(batch) < asked:
            break
    return Result(
        columns=[attribute.name for attribute in attributes],
        types=[_column_type(attribute.type.name, attribute.type.kind) for attribute in attributes],
        rows=collector.rows,
        truncated=collector.truncated,
    )


async def _plan(connection: PoolConnectionProxy[Any], sql: str) -> Mapping[str, Any]:
    """What the planner expects, in its own units; nothing is run."""
    (explained,) = await connection.fetchval(f"EXPLAIN (FORMAT JSON, VERBOSE) {sql}")
    plan: Mapping[str, Any] = explained["Plan"]
    return plan


async def _nothing_to_reset(_connection: asyncpg.Connection[Any]) -> None:
    """In the place of asyncpg's reset: :meth:`PostgresBackend._reset` has done it."""


def _column_type(name: str, kind: str) -> ColumnType:
    if kind in ("array", "composite"):
        return "structured"
    return _TYPES.get(name, "string")


def _is_closed(connection: PoolConnectionProxy[Any]) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # the pool has taken it back
        return True


def _explain(error: asyncpg.PostgresError) -> str:
    """The server's message and hint: about the query, never about the connection."""
    message = getattr(error, "message", None) or "The database could not run the query."
    hint = getattr(error, "hint", None)
    return f"{message}. {hint}" if hint else str(message)


def _table(
    row: asyncpg.Record,
    columns: Sequence[asyncpg.Record],
    keys: Sequence[asyncpg.Record],
    entries: dict[int, str],
) -> TableInfo:
    own_keys = [key for key in keys if key["oid"] == row["oid"]]
    primary = next((list(key["columns"]) for key in own_keys if key["kind"] == "p"), [])
    return TableInfo(
        name=entries[row["oid"]],
        kind="view" if row["kind"] in ("v", "m") else "table",
        comment=row["comment"],
        # -1: never analysed; a plain view has no rows of its own.
        row_estimate=row["row_estimate"]
        if row["row_estimate"] >= 0 and row["kind"] != "v"
        else None,
        columns=[
            TableColumn(
                name=column["name"],
                type=column["type"],
                nullable=column["nullable"],
                comment=column["comment"],
                is_text=column["is_text"],
            )
            for column in columns
            if column["oid"] == row["oid"]
        ],
        primary_key=primary,
        unique_keys=[list(key["columns"]) for key in own_keys if key["kind"] == "u"],
        foreign_keys=[
            ForeignKey(list(key["columns"]), entries[key["target"]], list(key["referenced"]))
            for key in own_keys
            # A key that points at a hidden table would reveal it.
            if key["kind"] == "f" and key["target"] in entries
        ],
    )
