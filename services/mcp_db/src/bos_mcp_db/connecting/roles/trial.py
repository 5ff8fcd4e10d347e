"""Tries the role out: what it may read it reads, and every write and other read must fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pydantic import SecretStr

from bos_chassis.settings import settings_from
from bos_errors import FailedPrecondition
from bos_mcp_db.connecting.roles.mysql import mysql_session
from bos_mcp_db.connecting.roles.postgres import postgres_session
from bos_mcp_db.connecting.roles.sessions import Outcome, RoleSession
from bos_mcp_db.connecting.roles.sqlite import SqliteSession
from bos_mcp_db.databases import Database, open_databases
from bos_mcp_db.names import quote, split_table
from bos_mcp_db.settings import DEFAULT_DATABASE, DatabaseSettings, McpDbSettings

_CATALOGUES: Final = {
    "postgres": "pg_catalog.pg_authid",
    "mysql": "mysql.user",
    "sqlite": "sqlite_schema",
}
"""What no role of ours reads: with no table left out there is still one to try."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was tried; ``ok`` is whether it went as it has to."""

    ok: bool
    text: str


async def try_role(url: str, allowed: Sequence[str], left_out: Sequence[str]) -> list[Finding]:
    """Connect with ``url``, as mcp_db will, and try what it may do.

    Args:
        url: Of the role, or of a SQLite file.
        allowed: The allow-list.
        left_out: Tables that it must not read.

    Raises:
        BosError: the database cannot be reached with it.
    """
    main = DatabaseSettings(url=SecretStr(url), allowed_tables=tuple(allowed), sample_values=0)
    with settings_from("environment"):  # nothing of the folder where this is called
        settings = McpDbSettings.load(
            databases={DEFAULT_DATABASE: main}, database_url=None, pool_size=2, max_columns=500
        )
    async with open_databases(settings) as databases:
        (database,) = databases.all()
        found = [await _as_the_service(database)]
        async with _session(url, database) as session:
            found += [each async for each in _attempts(session, database, left_out)]
    return found


async def _as_the_service(database: Database) -> Finding:
    """Everything on the allow-list is described; mcp_db does not start otherwise."""
    described = {table.name for table in await database.describe()}
    missing = [name for name in database.tables if name not in described]
    if missing:
        return Finding(False, f"it does not see {', '.join(missing)}")
    return Finding(True, f"it sees all {len(described)} tables")


async def _attempts(
    session: RoleSession, database: Database, left_out: Sequence[str]
) -> AsyncIterator[Finding]:
    dialect, schema = database.backend.dialect, database.backend.default_schema

    def named(entry: str) -> str:
        return ".".join(quote(part, dialect) for part in split_table(entry, schema))

    reads = {entry: _reading(named(entry)) for entry in database.tables}
    yield await _all_done(session, reads, f"it reads all {len(reads)} tables")
    writes = {
        f"{word} {table.name}": statement
        for table in await database.describe()
        if table.kind == "table"
        for word, statement in _writing(named(table.name), dialect)
    }
    fresh = named("bos_connect_trial")
    writes["CREATE TABLE"] = f"CREATE TABLE {fresh} (n integer)"
    if dialect == "mysql":  # it commits: the catalogue of rights, below, says whether it may
        del writes["CREATE TABLE"]
    yield await _all_refused(session, writes, f"attempts to write, all refused: {len(writes)}")
    others = {entry: _reading(named(entry)) for entry in left_out}
    catalogue = _CATALOGUES[dialect]
    others[catalogue] = f"SELECT * FROM {catalogue} WHERE 1 = 0"  # noqa: S608  a name of ours
    yield await _all_refused(session, others, f"reads of other tables, all refused: {len(others)}")
    granted = frozenset(split_table(entry, schema) for entry in database.tables)
    surplus = await session.surplus(granted)
    for text in surplus:
        yield Finding(False, text)
    if not surplus and dialect != "sqlite":
        yield Finding(True, "the catalogue shows no other right of it")


def _reading(table: str) -> str:
    return f"SELECT 1 FROM {table} WHERE 1 = 0"  # noqa: S608  quoted


def _writing(table: str, dialect: str) -> Iterator[tuple[str, str]]:
    """Writes that would change nothing, and need the right to all the same."""
    # PostgreSQL refuses values for generated columns before it looks at rights, and takes none.
    row = "SELECT" if dialect == "postgres" else f"SELECT * FROM {table}"  # noqa: S608  quoted
    yield "DELETE FROM", f"DELETE FROM {table} WHERE 1 = 0"  # noqa: S608  quoted
    yield "INSERT INTO", f"INSERT INTO {table} {row} WHERE 1 = 0"


async def _all_done(session: RoleSession, statements: dict[str, str], text: str) -> Finding:
    for name, sql in statements.items():
        outcome = await session.attempt(sql)
        if outcome.kind != "done":
            return Finding(False, f"it cannot read {name}: {outcome.text}")
    return Finding(True, text)


async def _all_refused(session: RoleSession, statements: dict[str, str], text: str) -> Finding:
    """Whether each is refused for want of a right; any other failure shows nothing."""
    for name, sql in statements.items():
        outcome: Outcome = await session.attempt(sql)
        if outcome.kind == "done":
            return Finding(False, f"{name} was not refused")
        if outcome.kind == "failed":
            return Finding(False, f"{name} failed for another reason: {outcome.text}")
    return Finding(True, text)


@asynccontextmanager
async def _session(url: str, database: Database) -> AsyncIterator[RoleSession]:
    if database.backend.dialect == "postgres":
        async with postgres_session(url) as postgres:
            yield postgres
    elif database.backend.dialect == "mysql":
        async with mysql_session(url) as mysql:
            yield mysql
    elif database.backend.dialect == "sqlite":
        yield SqliteSession(database.backend)
    else:
        raise FailedPrecondition("The role of SQL Server is not tried out here.")
