"""Everything that a database declares, read by the login in its URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_chassis.settings import settings_from
from bos_errors import FailedPrecondition
from bos_mcp_db.backends.backend import MAX_LISTED
from bos_mcp_db.connecting.allow_list import LeftOut, entries, unwritable
from bos_mcp_db.connecting.texts import one_line
from bos_mcp_db.databases import dialect_of, open_backend, schema_of
from bos_mcp_db.settings import McpDbSettings
from bos_sqlguard import GuardPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_mcp_db.backends.backend import TableInfo
    from bos_sqlguard import Dialect


@dataclass(frozen=True, slots=True)
class Found:
    """A database as it is."""

    dialect: Dialect
    default_schema: str
    tables: tuple[TableInfo, ...]
    unwritable: tuple[LeftOut, ...]
    """Tables that no allow-list can name."""


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
        names = entries([each for each in listed if each not in reasons], backend.default_schema)
        tables = await backend.describe(names) if names else []
    finally:
        await backend.aclose()
    return Found(
        dialect=dialect,
        default_schema=backend.default_schema,
        tables=tuple(tables),
        unwritable=tuple(
            LeftOut(one_line(f"{schema}.{name}", 100), reason)
            for (schema, name), reason in reasons.items()
        ),
    )
