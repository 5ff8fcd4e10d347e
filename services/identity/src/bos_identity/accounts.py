"""Accounts in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg

from bos.identity.v1 import User
from bos_chassis.errors import AlreadyExists
from bos_postgres import acquire, execute, fetchrow, for_user, statement_errors

if TYPE_CHECKING:
    from datetime import datetime

    from bos.identity.v1 import RegisterUserRequest

LOCAL_USERNAME = "local"
LOCAL_USER_ID = UUID("00000000-0000-4000-8000-000000000001")
"""The user of a standalone that nobody has signed in to."""

_COLUMNS = "user_id, username, email, display_name, created_at"
_INSERT = f"""
INSERT INTO users (user_id, username, email, display_name, password) VALUES ($1, $2, $3, $4, $5)
RETURNING {_COLUMNS}
"""  # noqa: S608  Our own columns.
_LOCAL = """
INSERT INTO users (user_id, username, email, display_name) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""
_SELECT = f"SELECT {_COLUMNS}, password, password_changed_at FROM users"  # noqa: S608
_BY_NAME = f"{_SELECT} WHERE lower(username) = lower($1)"
_BY_EMAIL = f"{_SELECT} WHERE lower(email) = lower($1)"
_BY_ID = f"{_SELECT} WHERE user_id = $1"
_OWN = for_user(f"SELECT {_COLUMNS} FROM users")  # noqa: S608
_CHANGE = """
UPDATE users SET password = $2, password_changed_at = now() WHERE user_id = $1 AND password = $3
"""
_REHASH = "UPDATE users SET password = $2 WHERE user_id = $1 AND password = $3"


@dataclass(frozen=True, slots=True)
class Account:
    """A user, and the hash of the password."""

    user_id: UUID
    user: User
    password: str | None
    password_changed_at: datetime


class Accounts:
    """Users in the store.

    Args:
        pool: Connections of the service's own role.
        readers: Connections of the role that sees the rows of one user.
    """

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], readers: asyncpg.Pool[asyncpg.Record]
    ) -> None:
        self._pool = pool
        self._readers = readers

    async def add(self, request: RegisterUserRequest, password: str) -> User:
        """Make an account; ``password`` is the hash.

        Raises:
            AlreadyExists: Username or address is taken.
        """
        display_name = request.display_name.strip() or request.username
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                try:
                    row = await connection.fetchrow(
                        _INSERT,
                        uuid4(),
                        request.username,
                        request.email,
                        display_name,
                        password,
                    )
                except asyncpg.UniqueViolationError as error:
                    raise _taken(error.constraint_name or "") from None
        assert row is not None
        return _user(row)

    async def add_local_user(self) -> None:
        """Make the account of the standalone's own user, unless it exists. It has no password."""
        await execute(
            self._pool, _LOCAL, LOCAL_USER_ID, LOCAL_USERNAME, "local@localhost", "Local user"
        )

    async def by_name(self, name: str) -> Account | None:
        """The account with this username or address, if there is one."""
        if "\0" in name:
            return None  # PostgreSQL could not even be asked
        row = await fetchrow(self._pool, _BY_EMAIL if "@" in name else _BY_NAME, name)
        return None if row is None else _account(row)

    async def by_id(self, user_id: UUID) -> Account | None:
        """The account with this id, if there is one."""
        row = await fetchrow(self._pool, _BY_ID, user_id)
        return None if row is None else _account(row)

    async def own(self, user_id: UUID) -> User | None:
        """The user as the user may see it."""
        row = await fetchrow(self._readers, _OWN, str(user_id))
        return None if row is None else _user(row)

    async def set_password(self, account: Account, password: str) -> bool:
        """Replace the hash; False if somebody else has done so in the meantime."""
        return await self._replace(_CHANGE, account, password)

    async def rehash(self, account: Account, password: str) -> None:
        """Replace the hash by one of the same password at today's cost."""
        await self._replace(_REHASH, account, password)

    async def _replace(self, statement: str, account: Account, password: str) -> bool:
        status = await execute(self._pool, statement, account.user_id, password, account.password)
        return status == "UPDATE 1"


def _account(row: asyncpg.Record) -> Account:
    return Account(row["user_id"], _user(row), row["password"], row["password_changed_at"])


def _user(row: asyncpg.Record) -> User:
    user = User(
        user_id=str(row["user_id"]),
        username=row["username"],
        email=row["email"],
        display_name=row["display_name"],
    )
    user.create_time.FromDatetime(row["created_at"])
    return user


def _taken(constraint: str) -> AlreadyExists:
    if constraint == "users_by_email":
        return AlreadyExists(
            "email: this address has an account already; sign in with it.",
            reason="EMAIL_TAKEN",
            metadata={"field": "email"},
        )
    return AlreadyExists(
        "username: this name is taken; choose another one.",
        reason="USERNAME_TAKEN",
        metadata={"field": "username"},
    )
