"""Everything that a database declares, read by the login in its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_chassis.settings import settings_from
from bos_errors import FailedPrecondition
from bos_mcp_db.backends.backend import MAX_LISTED
from bos_mcp_db.connecting.allow_list import LeftOut, unwritable
from bos_mcp_db.connecting.texts import one_line
from bos_mcp_db.databases import dialect_of, open_backend, schema_of
from bos_mcp_db.failures import QueryFailed
from bos_mcp_db.settings import McpDbSettings
from bos_sqlguard import GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_mcp_db.backends.backend import Backend, TableInfo, TableName
    from bos_sqlguard import Dialect


@dataclass(frozen=True, slots=True)
class Found:
    """A database as it is."""

    dialect: Dialect
    default_schema: str
    tables: tuple[TableInfo, ...]
    sources: Mapping[str, frozenset[str]] | None
    """What each view reads, spelled as in an allow-list; None: the database does not say."""
    unusable: tuple[LeftOut, ...]
    """Tables that no allow-list can name, and views of tables that are gone."""


async def introspect(url: str, schemas: Sequence[str] = ()) -> Found:
    """Read all tables, or those of ``schemas``; no row is read.

    Raises:
        BosError: an unusable URL, no connection, or more tables than can be looked through.
    """
    with settings_from("environment"):  # nothing of the folder where this is called
        settings = McpDbSettings.load(databases={}, database_url=None, pool_size=2)
    dialect = dialect_of("connect", url)
    policy = GuardPolicy(dialect, frozenset(), default_schema=schema_of(url, dialect))
    backend = open_backend("connect", url, policy, settings, catalogue_only=True)
    try:
        listed = await backend.listed()
        if schemas:
            listed = [each for each in listed if each[0] in schemas]
        if len(listed) > MAX_LISTED:
            raise FailedPrecondition(
                f"There are more than {MAX_LISTED} tables. Name the schemas to look at by --schema."
            )
        reasons = unwritable(listed, dialect, backend.default_schema)
        names = [_entry(each, backend.default_schema) for each in listed if each not in reasons]
        tables, broken = await _described(backend, names)
        sources = await backend.view_sources()
    finally:
        await backend.aclose()
    return Found(
        dialect=dialect,
        default_schema=backend.default_schema,
        tables=tuple(tables),
        sources=None
        if sources is None
        else {
            _entry(view, backend.default_schema): frozenset(
                _entry(source, backend.default_schema) for source in read
            )
            for view, read in sources.items()
        },
        unusable=tuple(
            LeftOut(one_line(name, 100), reason)
            for name, reason in (
                *((f"{schema}.{name}", reason) for (schema, name), reason in reasons.items()),
                *((name, "the database cannot describe it") for name in broken),
            )
        ),
    )


async def _described(backend: Backend, names: list[str]) -> tuple[list[TableInfo], list[str]]:
    """Tables as declared, and those that cannot be described."""
    if not names:
        return [], []
    try:
        return await backend.describe(names), []
    except QueryFailed:
        if len(names) == 1:
            return [], names
    middle = len(names) // 2
    tables, broken = await _described(backend, names[:middle])
    more, also_broken = await _described(backend, names[middle:])
    return tables + more, broken + also_broken


def _entry(table: TableName, default_schema: str) -> str:
    """A table as an allow-list names it: one of the default schema by its name alone."""
    schema, name = table
    return name if schema == default_schema else f"{schema}.{name}"
