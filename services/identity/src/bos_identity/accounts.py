"""Accounts in the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID, uuid4

import asyncpg

from bos.identity.v1 import User
from bos_chassis.names import ADMINISTRATOR, USER
from bos_errors import AlreadyExists
from bos_identity.account import Account
from bos_identity.sessions import END_OTHERS
from bos_postgres import execute, fetchrow, for_user
from bos_postgres.audit import By, deed, record

SERVICE = By("identity", "service")
"""What identity does by itself, in the audit trail."""
LOCAL_USERNAME = "local"
LOCAL_USER_ID = UUID("00000000-0000-4000-8000-000000000001")
"""The user of a standalone before the first sign-in."""

COLUMNS = (
    "user_id, username, email, display_name, created_at, roles, groups, is_service, "
    "deactivated_at, deleting"
)
"""What :func:`user` is made of."""
FIRST_ROLES = (USER, ADMINISTRATOR)
"""Roles of the first account."""

# Of many who register at once one is the founder: the others wait for its row, and then see it.
_FOUNDED = """
WITH founded AS (
    INSERT INTO founder (founder_id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING founder_id
)
"""
_INSERT = "INSERT INTO users (user_id, username, email, display_name, password, roles, groups)"
_OPEN = f"""
{_FOUNDED} {_INSERT}
SELECT $1, $2, $3, $4, $5,
       CASE WHEN EXISTS (SELECT FROM founded) THEN $6::text[] ELSE ARRAY['{USER}'] END, '{{}}'
RETURNING {COLUMNS}
"""  # noqa: S608  Our own columns.
_FIRST = f"""
{_FOUNDED} {_INSERT} SELECT $1, $2, $3, $4, $5, $6::text[], '{{}}' FROM founded
RETURNING {COLUMNS}
"""  # noqa: S608
_INVITED = f"""
WITH used AS (
    UPDATE invitations SET used_by = $1
    WHERE code_digest = $6 AND used_by IS NULL AND expires_at > now()
    RETURNING roles, groups
) {_INSERT} SELECT $1, $2, $3, $4, $5, roles, groups FROM used
RETURNING {COLUMNS}
"""  # noqa: S608
_LOCAL = """
INSERT INTO users (user_id, username, email, display_name) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""
_SELECT = f"SELECT {COLUMNS}, password, password_changed_at FROM users"  # noqa: S608
_BY_NAME = f"{_SELECT} WHERE lower(username) = lower($1)"
_BY_EMAIL = f"{_SELECT} WHERE lower(email) = lower($1)"
_BY_ID = f"{_SELECT} WHERE user_id = $1"
_OWN = for_user(f"SELECT {COLUMNS} FROM users")  # noqa: S608
_CHANGE = """
UPDATE users SET password = $2, password_changed_at = now()
WHERE user_id = $1 AND password = $3 AND deactivated_at IS NULL
"""
_REHASH = "UPDATE users SET password = $2 WHERE user_id = $1 AND password = $3"


class Right(Enum):
    """Right by which an account is made."""

    OPEN = _OPEN
    """Any person may; the first one is the administrator."""
    FIRST = _FIRST
    """It is the first account of all."""
    INVITED = _INVITED
    """There is an invitation."""


@dataclass(frozen=True, slots=True)
class NewAccount:
    """An account to be registered."""

    username: str
    email: str
    display_name: str
    password: str = field(repr=False)
    """The hash."""


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

    async def add(
        self, new: NewAccount, right: Right, code_digest: bytes = b"", address: str = ""
    ) -> User | None:
        """Make an account, if there is the right to it at this moment.

        Args:
            new: What it is to be.
            right: By which right.
            code_digest: Of the invitation, where that is the right.
            address: Where the call comes from, where that is known.

        Returns:
            None if there is not: the first account exists, or the invitation was used.

        Raises:
            AlreadyExists: Username or address is taken.
        """
        own = code_digest if right is Right.INVITED else list(FIRST_ROLES)
        given = (uuid4(), new.username, new.email, new.display_name, new.password, own)
        async with deed(self._pool) as connection:
            try:
                row = await connection.fetchrow(right.value, *given)
            except asyncpg.UniqueViolationError as error:
                raise _taken(error.constraint_name or "", right) from None
            if row is None:
                return None
            by = By(str(row["user_id"]), address=address)
            entry = by.entry(
                "account.registered",
                by.actor,
                right=right.name.lower(),
                roles=" ".join(row["roles"]),
                groups=" ".join(row["groups"]),
            )
            await record(connection, [entry])
        return user_of(row)

    async def add_local_user(self) -> None:
        """Make the account of the standalone's own user, unless it exists. It has no password."""
        own = (LOCAL_USER_ID, LOCAL_USERNAME, "local@localhost", "Local user")
        async with deed(self._pool) as connection:
            if await connection.execute(_LOCAL, *own) == "INSERT 0 1":
                entry = SERVICE.entry("account.registered", str(LOCAL_USER_ID), right="local")
                await record(connection, [entry])

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
        return None if row is None else user_of(row)

    async def change_password(
        self, account: Account, password: str, kept: UUID | None, by: By
    ) -> bool:
        """Replace the hash and end all sessions but one, both or nothing.

        Returns:
            False if another call has changed the password in the meantime.
        """
        # Two statements, so that the second sees the session of a login that the first one had to
        # wait for; one transaction, so that nothing can come between.
        async with deed(self._pool) as connection:
            status = await connection.execute(_CHANGE, account.user_id, password, account.password)
            if status != "UPDATE 1":
                return False
            await connection.execute(END_OTHERS, account.user_id, kept, "password_changed")
            await record(connection, [by.entry("password.changed", str(account.user_id))])
        return True

    async def rehash(self, account: Account, password: str) -> None:
        """Replace the hash by one of the same password at today's cost."""
        await execute(self._pool, _REHASH, account.user_id, password, account.password)


def _account(row: asyncpg.Record) -> Account:
    return Account(row["user_id"], user_of(row), row["password"], row["password_changed_at"])


def user_of(row: asyncpg.Record) -> User:
    """The user that a row with :data:`COLUMNS` describes."""
    user = User(
        user_id=str(row["user_id"]),
        username=row["username"],
        email=row["email"] or "",
        display_name=row["display_name"],
        roles=row["roles"],
        groups=row["groups"],
        active=row["deactivated_at"] is None,
        service_account=row["is_service"],
        deleting=row["deleting"],
    )
    user.create_time.FromDatetime(row["created_at"])
    return user


def _taken(constraint: str, right: Right) -> AlreadyExists:
    if right is Right.OPEN:
        # Any caller can ask here: which of them it is would reveal who has an account.
        return AlreadyExists(
            "username, email: an account cannot be made with these; sign in if it is yours, or "
            "choose others.",
            reason="ACCOUNT_TAKEN",
        )
    if constraint == "users_by_email":
        return AlreadyExists(
            "email: this address has an account already; sign in with it.",
            reason="EMAIL_TAKEN",
            metadata={"field": "email"},
        )
    return name_taken()


def name_taken() -> AlreadyExists:
    """The refusal for callers who may know which names are taken."""
    return AlreadyExists(
        "username: this name is taken; choose another one.",
        reason="USERNAME_TAKEN",
        metadata={"field": "username"},
    )
