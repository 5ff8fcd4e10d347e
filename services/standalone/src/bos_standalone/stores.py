"""Databases of the embedded PostgreSQL: the stores, and the sample company with its reader."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bos_errors import AlreadyExists
from bos_mcp_db.provisioning import provision_sql
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import connect, create_database, with_database

if TYPE_CHECKING:
    from bos_demo.service import Demo

STORE_DATABASE = "bos"
COMPANY_DATABASE = "company"
_READER = "company_reader"
_ABOUT = (
    "Nilgiri Flow Works, which buys and sells pumps, valves and pipes: customers, sales, purchases,"
    " stock, service tickets, employees"
)


async def ensure_database(server_dsn: str, name: str) -> str:
    """URL of a database on the server of ``server_dsn``; created if it does not exist."""
    with contextlib.suppress(AlreadyExists):
        await create_database(server_dsn, name)
        async with connect(with_database(server_dsn, name)) as connection:
            # Roles that may log in see their own database and no other.
            await connection.execute(f'REVOKE CONNECT ON DATABASE "{name}" FROM PUBLIC')
    return with_database(server_dsn, name)


async def company_database(demo: Demo) -> DatabaseSettings:
    """Configuration of the sample company for mcp_db, with a role that only reads its tables.

    The role's password is generated at each start and handed to mcp_db alone.
    """
    password = secrets.token_hex(24)
    script = provision_sql(_READER, demo.allowed_tables, default_schema=demo.database_schema)
    async with connect(demo.database_dsn) as connection:
        await connection.execute(script)
        await connection.execute(f'GRANT CONNECT ON DATABASE "{COMPANY_DATABASE}" TO {_READER}')
        await connection.execute(f"ALTER ROLE {_READER} SET search_path = {demo.database_schema}")
        await connection.execute(f"ALTER ROLE {_READER} PASSWORD '{password}'")
    return DatabaseSettings(
        url=_as_user(demo.database_dsn, _READER, password),
        allowed_tables=demo.allowed_tables,
        default_schema=demo.database_schema,
        description=_ABOUT,
    )


def _as_user(dsn: str, user: str, password: str) -> str:
    parts = urlsplit(dsn)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}:{password}@{host}").geturl()
