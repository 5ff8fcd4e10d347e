"""Creating and dropping whole databases on a server."""

from __future__ import annotations

import asyncpg

from bos_errors import AlreadyExists, ConfigurationError
from bos_postgres.connections import connect
from bos_postgres.dsn import check_identifier, describe, with_database


async def create_database(dsn: str, name: str) -> str:
    """Create an empty database beside the one of ``dsn``; returns the URL of the new one.

    Raises:
        AlreadyExists: There is one of that name.
        ConfigurationError: The name is unusable, or the role of ``dsn`` may not create databases.
        Unavailable: The server cannot be reached.
    """
    check_identifier(name, "The database name")
    async with connect(dsn) as connection:
        try:
            await connection.execute(f'CREATE DATABASE "{name}"')
        except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError) as error:
            raise AlreadyExists(f"There is a database {name} already.") from error
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigurationError(
                f"The user of {describe(dsn)} may not create databases; grant it CREATEDB."
            ) from error
    return with_database(dsn, name)


async def drop_database(dsn: str, name: str) -> None:
    """Drop a database beside the one of ``dsn``, with its connections, if it exists.

    Raises:
        ConfigurationError: The name is unusable.
        Unavailable: The server cannot be reached.
    """
    check_identifier(name, "The database name")
    async with connect(dsn) as connection:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
