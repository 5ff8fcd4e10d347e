"""SQL that prepares a PostgreSQL role able to read the listed tables and nothing else (R-02)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_mcp_db.names import quote, split_table

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_SCRIPT = """\
BEGIN;
DO $provision$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE {role};
    END IF;
    IF EXISTS (
        SELECT FROM pg_roles
        WHERE rolname = '{role}'
          AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication)
    ) THEN
        RAISE EXCEPTION 'role {role} has administrative attributes; choose another name';
    END IF;
    -- Only a superuser may bound temporary files; elsewhere the statement timeout has to do.
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        ALTER ROLE {role} SET temp_file_limit = '1GB';
    END IF;
END $provision$;
ALTER ROLE {role} LOGIN NOINHERIT CONNECTION LIMIT 40;
ALTER ROLE {role} SET default_transaction_read_only = on;
ALTER ROLE {role} SET statement_timeout = '60s';
{revokes}
{usages}
GRANT SELECT ON
    {tables}
TO {role};
COMMIT;
"""


def provision_sql(role: str, tables: Sequence[str], *, default_schema: str = "public") -> str:
    """Return a script for an administrator of the database; safe to run again.

    The role can log in (set its password apart: ``ALTER ROLE … PASSWORD …``), reads the given
    tables, and starts every transaction read-only under a statement timeout. What ``PUBLIC`` may do
    is not touched.

    Args:
        role: name of the role, lower case; created unless it exists.
        tables: ``table`` or ``schema.table``, as in the allow-list.
        default_schema: schema of unqualified tables.

    Raises:
        ValueError: no tables, or a role name that is not plain.
    """
    if not _ROLE.fullmatch(role):
        raise ValueError("role must be a plain lower-case name of at most 63 characters")
    if not tables or not all(tables):
        raise ValueError("tables must not be empty")
    qualified = [split_table(table, default_schema) for table in tables]
    schemas = sorted({quote(schema) for schema, _ in qualified})
    return _SCRIPT.format(
        role=role,
        revokes="\n".join(f"REVOKE ALL ON ALL TABLES IN SCHEMA {s} FROM {role};" for s in schemas),
        usages="\n".join(f"GRANT USAGE ON SCHEMA {s} TO {role};" for s in schemas),
        tables=",\n    ".join(f"{quote(schema)}.{quote(table)}" for schema, table in qualified),
    )
