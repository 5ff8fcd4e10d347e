"""Makes the role: runs its script as the administrator, and gives it its password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bos_errors import FailedPrecondition, InvalidArgument
from bos_mcp_db.connecting.roles.mysql import mysql_session
from bos_mcp_db.connecting.roles.postgres import postgres_session
from bos_mcp_db.connecting.roles.sessions import Administrator
from bos_mcp_db.databases import dialect_of


async def apply_role(
    url: str, script: str, role: str, password_file: Path, *, may_exist: bool
) -> None:
    """Run ``script`` with ``url``, then set the role's password to what the file holds.

    Args:
        url: Of the administrator.
        script: Of the role.
        role: Its name.
        password_file: Its password.
        may_exist: Whether a role of this name may be taken over, with all that uses it.

    Raises:
        FailedPrecondition: the role exists, or the database refused the script.
        InvalidArgument: a password that cannot be used, or the administrator's own name.
    """
    password = (await asyncio.to_thread(password_file.read_text, "utf-8")).strip()
    if not (password and password.isascii() and password.isprintable()):
        raise InvalidArgument(f"{password_file} must hold a password of plain characters.")
    if unquote(urlsplit(url).username or "") == role:
        raise InvalidArgument(
            f"--role: {role} is the login of the URL, which would lose its rights."
        )
    async with _administrator(url) as administrator:
        if not may_exist and await administrator.has_role(role):
            raise role_exists(role)
        await administrator.provision(script, role, password)


async def has_role(url: str, role: str) -> bool:
    """Whether the server at ``url`` has a role of this name."""
    async with _administrator(url) as administrator:
        return await administrator.has_role(role)


def role_exists(role: str) -> FailedPrecondition:
    """The refusal to take a role over."""
    return FailedPrecondition(
        f"There is a role {role} already, which something else may use. Choose another name"
        f" by --role, or use --role {role} --force to take it over."
    )


@asynccontextmanager
async def _administrator(url: str) -> AsyncIterator[Administrator]:
    if dialect_of("connect", url) == "postgres":
        async with postgres_session(url) as postgres:
            yield postgres
    else:
        async with mysql_session(url) as mysql:
            yield mysql
