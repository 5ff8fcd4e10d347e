"""SQL that prepares a role able to read the listed tables and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bos_mcp_db.names import quote, split_table

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
    _check(role, tables)
    qualified = [split_table(table, default_schema) for table in tables]
    schemas = sorted({quote(schema) for schema, _ in qualified})
    return _SCRIPT.format(
        role=role,
        revokes="\n".join(f"REVOKE ALL ON ALL TABLES IN SCHEMA {s} FROM {role};" for s in schemas),
        usages="\n".join(f"GRANT USAGE ON SCHEMA {s} TO {role};" for s in schemas),
        tables=",\n    ".join(f"{quote(schema)}.{quote(table)}" for schema, table in qualified),
    )


_MSSQL_SCRIPT = """\
-- Run in the database itself, by its administrator, after CREATE LOGIN {role} WITH PASSWORD = '…'.
SET XACT_ABORT ON;
BEGIN TRANSACTION;
IF DATABASE_PRINCIPAL_ID(N'{role}') IS NULL
    CREATE USER {user} FOR LOGIN {user} WITH DEFAULT_SCHEMA = {schema};
ELSE
    ALTER USER {user} WITH DEFAULT_SCHEMA = {schema};
IF EXISTS (SELECT 1 FROM sys.database_role_members
           WHERE member_principal_id = DATABASE_PRINCIPAL_ID(N'{role}'))
    THROW 50000, N'{role} is a member of a role; choose another name', 1;
DECLARE @revoke nvarchar(max) = N'';
SELECT @revoke += N'REVOKE SELECT ON ' + QUOTENAME(SCHEMA_NAME(o.schema_id)) + N'.'
                + QUOTENAME(o.name) + N' FROM {user};'
FROM sys.database_permissions AS p
JOIN sys.objects AS o ON o.object_id = p.major_id
WHERE p.class = 1 AND p.grantee_principal_id = DATABASE_PRINCIPAL_ID(N'{role}');
EXEC sys.sp_executesql @revoke;
GRANT SHOWPLAN TO {user};
DENY INSERT, UPDATE, DELETE TO {user};
{grants}
COMMIT TRANSACTION;
"""


def provision_mssql(role: str, tables: Sequence[str], *, default_schema: str = "dbo") -> str:
    """Return the same for SQL Server; it was checked by reading only, not on a server.

    Raises:
        ValueError: no tables, or a role name that is not plain.
    """
    _check(role, tables)
    qualified = [split_table(table, default_schema) for table in tables]
    return _MSSQL_SCRIPT.format(
        role=role,
        user=quote(role),
        schema=quote(default_schema),
        grants="\n".join(
            f"GRANT SELECT ON {quote(schema)}.{quote(table)} TO {quote(role)};"
            for schema, table in qualified
        ),
    )


_MYSQL_SCRIPT = """\
CREATE USER IF NOT EXISTS {user} ACCOUNT LOCK;
REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user};
ALTER USER {user} WITH MAX_USER_CONNECTIONS 40;
{grants}
"""
_MYSQL_ADMINISTRATORS = frozenset({"root", "mysql"})


def provision_mysql(role: str, tables: Sequence[str], *, database: str) -> str:
    """Return a script for an administrator of MySQL or MariaDB; safe to run again.

    The user reads the given tables, and loses every other right. A new one is locked until
    it has a password: ``ALTER USER … IDENTIFIED BY '…' ACCOUNT UNLOCK``. What everybody may do,
    as in a database called ``test``, is not touched.

    Args:
        role: name of the user, at all hosts (``'%'``); lower case.
        tables: ``table`` or ``database.table``, as in the allow-list.
        database: database of unqualified tables.

    Raises:
        ValueError: no tables, a name that is not plain, or one of an administrator.
    """
    _check(role, tables)
    if role in _MYSQL_ADMINISTRATORS:
        raise ValueError("role must not be an administrator, who would lose all rights")
    user = f"'{role}'@'%'"
    qualified = [split_table(table, database) for table in tables]
    return _MYSQL_SCRIPT.format(
        user=user,
        grants="\n".join(
            f"GRANT SELECT ON {quote(schema, 'mysql')}.{quote(table, 'mysql')} TO {user};"
            for schema, table in qualified
        ),
    )


def _check(role: str, tables: Sequence[str]) -> None:
    if not _ROLE.fullmatch(role):
        raise ValueError("role must be a plain lower-case name of at most 63 characters")
    if not tables or not all(tables):
        raise ValueError("tables must not be empty")
