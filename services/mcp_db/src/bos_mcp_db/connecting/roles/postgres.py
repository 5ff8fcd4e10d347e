"""PostgreSQL: the administrator who makes the role, and the role that is tried."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from bos_errors import FailedPrecondition
from bos_mcp_db.backends.password_file import password_source
from bos_mcp_db.connecting.roles.sessions import Outcome
from bos_mcp_db.connecting.texts import one_line
from bos_mcp_db.failures import DatabaseUnavailable
from bos_mcp_db.names import quote

_TIMEOUT_S: Final = 20.0
_CONNECT_TIMEOUT_S: Final = 5.0
_SCRAM_ROUNDS: Final = 4096

# Of the role and of PUBLIC, in the whole database. What extensions let everybody read, as
# pg_stat_statements does, is theirs to decide.
_SURPLUS = """
SELECT n.nspname AS schema, c.relname AS name,
       has_any_column_privilege(c.oid, 'SELECT')
       AND NOT EXISTS (SELECT FROM pg_depend AS d
                       WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
                         AND d.deptype = 'e') AS reads,
       has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
       OR has_any_column_privilege(c.oid, 'INSERT, UPDATE') AS writes
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname::text, 'pg_')
  AND has_schema_privilege(n.oid, 'USAGE')
ORDER BY 1, 2
"""
_CREATES = """
SELECT nspname FROM pg_namespace
WHERE has_schema_privilege(oid, 'CREATE') AND NOT starts_with(nspname::text, 'pg_') ORDER BY 1
"""
_MEMBER = """
SELECT g.rolname FROM pg_auth_members AS m JOIN pg_roles AS g ON g.oid = m.roleid
JOIN pg_roles AS r ON r.oid = m.member WHERE r.rolname = current_user ORDER BY 1
"""


class PostgresSession:
    """See :class:`~bos_mcp_db.connecting.roles.sessions.RoleSession`, and ``Administrator``."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def has_role(self, role: str) -> bool:
        """Whether there is a role of this name."""
        return bool(
            await self._connection.fetchval(
                "SELECT count(*) FROM pg_roles WHERE rolname = $1", role
            )
        )

    async def provision(self, script: str, role: str, password: str) -> None:
        """Run the script; the password goes to the server, and into its log, as a digest."""
        try:
            await self._connection.execute(script)
        except asyncpg.PostgresError as error:
            raise FailedPrecondition(
                f"The script of the role failed, and changed nothing: {_text(error)}"
            ) from None
        verifier = scram_verifier(password)
        try:
            await self._connection.execute(f"ALTER ROLE {quote(role)} PASSWORD '{verifier}'")
        except asyncpg.PostgresError as error:
            raise FailedPrecondition(
                f"The role is made, and its password could not be set: {_text(error)}"
            ) from None

    async def attempt(self, sql: str) -> Outcome:
        """In a transaction that may write, as far as the role's own settings go."""
        await self._connection.execute("BEGIN READ WRITE")
        try:
            await self._connection.execute(sql)
        except asyncpg.InsufficientPrivilegeError as error:
            return Outcome("refused", _text(error))
        except asyncpg.PostgresError as error:
            return Outcome("failed", _text(error))
        finally:
            await self._connection.execute("ROLLBACK")
        return Outcome("done")

    async def surplus(self, granted: frozenset[tuple[str, str]]) -> list[str]:
        """Rights of the role and of PUBLIC on other tables, schemas and roles."""
        found = []
        for row in await self._connection.fetch(_SURPLUS):
            name = one_line(f"{row['schema']}.{row['name']}")
            if row["writes"]:
                found.append(f"it may write to {name}")
            if row["reads"] and (row["schema"], row["name"]) not in granted:
                found.append(f"it may read {name}")
        schemas = [row["nspname"] for row in await self._connection.fetch(_CREATES)]
        groups = [row["rolname"] for row in await self._connection.fetch(_MEMBER)]
        found += [f"it may create tables in schema {one_line(each)}" for each in schemas]
        found += [
            f"it is a member of {one_line(each)}, and can take on its rights" for each in groups
        ]
        return found


@asynccontextmanager
async def postgres_session(url: str) -> AsyncIterator[PostgresSession]:
    """A session of the login in ``url``.

    Raises:
        DatabaseUnavailable: no connection, or it ended.
        FailedPrecondition: the server refused something that is no attempt.
    """
    dsn, password = password_source(url, "connect")
    try:
        connection = await asyncpg.connect(
            dsn,
            password=password,
            timeout=_CONNECT_TIMEOUT_S,
            command_timeout=_TIMEOUT_S,
            statement_cache_size=0,
            server_settings={
                "application_name": "bos-connect",
                "search_path": "pg_catalog, pg_temp",
                "standard_conforming_strings": "on",
                "lock_timeout": "5s",
            },
        )
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError):
        # Such errors name hosts, users and databases.
        raise DatabaseUnavailable from None
    try:
        yield PostgresSession(connection)
    except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError):
        raise DatabaseUnavailable from None
    except asyncpg.PostgresError as error:  # such as a standby, which takes no writes at all
        raise FailedPrecondition(f"The database refused: {_text(error)}") from None
    finally:
        connection.terminate()


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """What PostgreSQL keeps of a password of ASCII characters (RFC 5803, RFC 7677)."""
    salt = salt or secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _SCRAM_ROUNDS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    stored = hashlib.sha256(client).digest()
    salt_text, stored_text, server_text = (
        base64.b64encode(part).decode() for part in (salt, stored, server)
    )
    return f"SCRAM-SHA-256${_SCRAM_ROUNDS}:{salt_text}${stored_text}:{server_text}"


def _text(error: asyncpg.PostgresError) -> str:
    return one_line(getattr(error, "message", None) or "the database refused")
