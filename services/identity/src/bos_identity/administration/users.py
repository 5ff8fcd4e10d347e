"""Accounts as administrators change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid4

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from bos.identity.v1 import User
from bos_chassis.names import ADMINISTRATOR, USER
from bos_errors import FailedPrecondition, InvalidArgument, NotFound
from bos_identity.accounts import COLUMNS, name_taken, user_of
from bos_identity.api_keys.store import REVOKE_ALL
from bos_identity.sessions import END_OTHERS
from bos_postgres import fetch
from bos_postgres.audit import AuditEntry, By, deed, record

# Any number of our own.
LAST_LOCK: Final = 0x626F73_61646D
"""Advisory lock for taking an administrator away."""
_RETURNING = f"RETURNING {COLUMNS}"
_LIST = f"""
SELECT {COLUMNS} FROM users
WHERE ($1 = '' OR lower(username) = lower($1)) AND lower(username) > $2
ORDER BY lower(username) LIMIT $3
"""  # noqa: S608  Our own columns.
_ADD_SERVICE = f"""
INSERT INTO users (user_id, username, email, display_name, roles, groups, is_service)
VALUES ($1, $2, NULL, $3, $4, $5, true) {_RETURNING}
"""  # noqa: S608
_CAN_ADMINISTER = (
    f"roles @> ARRAY['{ADMINISTRATOR}'] AND password IS NOT NULL AND deactivated_at IS NULL"
)
ONE_IS_LEFT = f"""
(NOT ({_CAN_ADMINISTER})
 OR EXISTS (SELECT FROM users WHERE user_id <> $1 AND {_CAN_ADMINISTER}))
"""
"""That an administrator is left who can sign in, without the user $1."""
_SET_ROLES = f"""
UPDATE users SET roles = $2
WHERE user_id = $1 AND NOT deleting
      AND ($2::text[] @> ARRAY['{ADMINISTRATOR}'] OR {ONE_IS_LEFT}) {_RETURNING}
"""  # noqa: S608
_SET_GROUPS = f"""
UPDATE users SET groups = $2 WHERE user_id = $1 AND NOT deleting {_RETURNING}
"""  # noqa: S608
_DEACTIVATE = f"""
UPDATE users SET deactivated_at = coalesce(deactivated_at, now())
WHERE user_id = $1 AND {ONE_IS_LEFT} {_RETURNING}
"""  # noqa: S608
_REACTIVATE = f"""
UPDATE users SET deactivated_at = NULL WHERE user_id = $1 AND NOT deleting {_RETURNING}
"""  # noqa: S608
_STAYS = "SELECT EXISTS (SELECT FROM users WHERE user_id = $1 AND NOT deleting)"
_EXISTS = "SELECT EXISTS (SELECT FROM users WHERE user_id = $1)"
_VOID_RESETS = "DELETE FROM password_resets WHERE user_id = $1"
# Codes handed out by a former administrator would let them in again.
_VOID_INVITATIONS_BY = "DELETE FROM invitations WHERE created_by = $1 AND used_by IS NULL"
_VOID_RESETS_BY = "DELETE FROM password_resets WHERE created_by = $1"


class Users:
    """All accounts, for administrators.

    Args:
        pool: Connections of the service's own role.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record]) -> None:
        self._pool = pool

    async def list(self, username: str, after: str, most: int) -> list[User]:
        """Accounts whose usernames come behind ``after``, in their order; or one by its name."""
        return [user_of(row) for row in await fetch(self._pool, _LIST, username, after, most)]

    async def add_service(
        self, username: str, display_name: str, roles: Sequence[str], groups: Sequence[str], by: By
    ) -> User:
        """Make an account for a service.

        Raises:
            AlreadyExists: The name is taken.
        """
        arguments = (uuid4(), username, display_name, list(roles) or [USER], list(groups))
        async with deed(self._pool) as connection:
            try:
                row = await connection.fetchrow(_ADD_SERVICE, *arguments)
            except asyncpg.UniqueViolationError:
                raise name_taken() from None
            assert row is not None
            user = user_of(row)
            await record(connection, [_rights("service_account.created", user, by)])
        return user

    async def set_roles(self, user_id: UUID, roles: Sequence[str], by: By) -> User:
        """Replace the roles. Who ceases to administer takes along the codes they have made.

        Raises:
            NotFound: There is no such account.
            FailedPrecondition: No administrator would be left.
            InvalidArgument: A service cannot be an administrator.
        """
        async with deed(self._pool) as connection:
            return await put_roles(connection, user_id, roles, by)

    async def set_groups(self, user_id: UUID, groups: Sequence[str], by: By) -> User:
        """Replace the groups.

        Raises:
            NotFound: There is no such account.
        """
        async with deed(self._pool) as connection:
            return await put_groups(connection, user_id, groups, by)

    async def deactivate(self, user_id: UUID, by: By) -> User:
        """Close an account with its sessions, keys, and the codes it has made, all at once.

        Raises:
            NotFound: There is no such account.
            FailedPrecondition: No administrator would be left.
        """
        # Sign-ins and new keys lock the account first, so nothing slips in.
        async with deed(self._pool) as connection:
            user = await _unless_last(connection, _DEACTIVATE, user_id)
            await connection.execute(END_OTHERS, user_id, None, "deactivated")
            await connection.execute(REVOKE_ALL, user_id)
            await connection.execute(_VOID_RESETS, user_id)
            await _void_codes_by(connection, user_id)
            await record(connection, [by.entry("account.deactivated", str(user_id))])
        return user

    async def reactivate(self, user_id: UUID, by: By) -> User:
        """Open an account again.

        Raises:
            NotFound: There is no such account.
            FailedPrecondition: It is being deleted.
        """
        async with deed(self._pool) as connection:
            row = await connection.fetchrow(_REACTIVATE, user_id)
            if row is None:
                if await connection.fetchval(_EXISTS, user_id):
                    raise FailedPrecondition(
                        "This account is being deleted.", reason="USER_DELETING"
                    )
                raise no_user()
            await record(connection, [by.entry("account.reactivated", str(user_id))])
        return user_of(row)


async def put_roles(
    connection: PoolConnectionProxy[asyncpg.Record], user_id: UUID, roles: Sequence[str], by: By
) -> User:
    """Replace the roles in a deed that has locked no account yet; see :meth:`Users.set_roles`."""
    try:
        user = await _unless_last(connection, _SET_ROLES, user_id, list(roles))
    except asyncpg.CheckViolationError:
        raise InvalidArgument.field(
            "roles", f"a service account cannot be an {ADMINISTRATOR}"
        ) from None
    if ADMINISTRATOR not in roles:
        await _void_codes_by(connection, user_id)
    await record(connection, [_rights("roles.changed", user, by)])
    return user


async def put_groups(
    connection: PoolConnectionProxy[asyncpg.Record], user_id: UUID, groups: Sequence[str], by: By
) -> User:
    """Replace the groups in a deed; see :meth:`Users.set_groups`."""
    row = await connection.fetchrow(_SET_GROUPS, user_id, list(groups))
    if row is None:
        raise no_user()
    user = user_of(row)
    await record(connection, [_rights("groups.changed", user, by)])
    return user


def last_administrator() -> FailedPrecondition:
    """Refusal to remove the last administrator."""
    return FailedPrecondition(
        "This is the last administrator; make another user one first.",
        reason="LAST_ADMINISTRATOR",
    )


def _rights(action: str, user: User, by: By) -> AuditEntry:
    """The entry about what an account may do from now on."""
    return by.entry(action, user.user_id, roles=" ".join(user.roles), groups=" ".join(user.groups))


def no_user() -> NotFound:
    """What administrators hear of accounts that there are not."""
    return NotFound("There is no such user.")


async def _void_codes_by(connection: PoolConnectionProxy[asyncpg.Record], user_id: UUID) -> None:
    """Void invitations and codes for new passwords that an administrator has made."""
    await connection.execute(_VOID_INVITATIONS_BY, user_id)
    await connection.execute(_VOID_RESETS_BY, user_id)


async def _unless_last(
    connection: PoolConnectionProxy[asyncpg.Record],
    statement: str,
    user_id: UUID,
    *arguments: object,
) -> User:
    """Do what may take an administrator away, one at a time: each sees what the others did."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LAST_LOCK)
    row = await connection.fetchrow(statement, user_id, *arguments)
    if row is not None:
        return user_of(row)
    if not await connection.fetchval(_STAYS, user_id):
        raise no_user()
    raise last_administrator()
