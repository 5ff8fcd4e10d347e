"""Accounts of people who sign in by an OpenID provider.

An account belongs permanently to one subject of the provider. It is never found by name or
e-mail address: a provider says who a person is there, not whose account here is theirs.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from bos_chassis.names import USER
from bos_errors import PermissionDenied, Unavailable
from bos_identity.account import Account
from bos_identity.accounts import COLUMNS, user_of
from bos_identity.administration.users import put_groups, put_roles
from bos_postgres.audit import By, deed, record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from bos.identity.v1 import User
    from bos_postgres.audit import AuditEntry

    Connection = PoolConnectionProxy[asyncpg.Record]

_NUMBERED: Final = 9
_RANDOM: Final = 5
# Those who sign in for the first time twice at once take turns.
_TURN: Final = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_KNOWN: Final = "SELECT user_id FROM external_identities WHERE issuer = $1 AND subject = $2"
_ADDRESS_TAKEN: Final = "SELECT EXISTS (SELECT FROM users WHERE lower(email) = lower($1))"
_MAKE: Final = """
INSERT INTO users (user_id, username, email, display_name, roles, groups)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING user_id, roles, groups
"""
_LINK: Final = "INSERT INTO external_identities (issuer, subject, user_id) VALUES ($1, $2, $3)"
_FIND: Final = f"""
SELECT {COLUMNS}, password, password_changed_at FROM users WHERE user_id = $1
"""  # noqa: S608  Our own columns.


@dataclass(frozen=True, slots=True)
class Person:
    """A person who signed in at the provider, as it describes them."""

    issuer: str
    subject: str
    username: str
    email: str | None
    display_name: str
    roles: Sequence[str] | None
    """None if the provider is not asked for them."""
    groups: Sequence[str] | None


class People:
    """Their accounts, made when they come for the first time.

    Args:
        pool: Connections of the service's own role.
        registration: Whether accounts are made.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], *, registration: bool) -> None:
        self._pool = pool
        self._registration = registration

    async def account(self, person: Person, address: str) -> tuple[Account, bool]:
        """Their account with what the provider says of today, and whether it was made just now.

        Args:
            person: The person who signed in at the provider.
            address: Where they call from, as far as is known.

        Raises:
            PermissionDenied: They have none, and none is made; or it is deactivated.
        """
        async with deed(self._pool) as connection:
            await connection.execute(_TURN, f"{person.issuer}\n{person.subject}")
            user_id = await connection.fetchval(_KNOWN, person.issuer, person.subject)
            is_new = user_id is None
            if is_new:
                user_id = await self._made(connection, person, address)
            row = await connection.fetchrow(_FIND, user_id)
            if row is None or row["deactivated_at"] is not None:
                raise PermissionDenied(
                    "This account is deactivated; ask an administrator.", reason="USER_DEACTIVATED"
                )
            user = await _with_rights_of_today(connection, person, user_of(row), address)
        return Account(row["user_id"], user, row["password"], row["password_changed_at"]), is_new

    async def _made(self, connection: Connection, person: Person, address: str) -> UUID:
        if not self._registration:
            raise PermissionDenied(
                "You have no account here; ask an administrator.", reason="REGISTRATION_CLOSED"
            )
        for username in _names(person.username):
            email = person.email
            if email is not None and await connection.fetchval(_ADDRESS_TAKEN, email):
                email = None  # that of another account, and it stays theirs alone
            row = await connection.fetchrow(
                _MAKE,
                uuid4(),
                username,
                email,
                person.display_name,
                person.roles if person.roles is not None else [USER],
                person.groups or [],
            )
            if row is not None:
                user_id: UUID = row["user_id"]
                await connection.execute(_LINK, person.issuer, person.subject, user_id)
                await record(connection, [_registered(row, address)])
                return user_id
        raise Unavailable("An account could not be made; try again.")


async def _with_rights_of_today(
    connection: Connection, person: Person, user: User, address: str
) -> User:
    """The user with the roles and groups that the provider names, where it is asked for them."""
    by, user_id = By("identity", "service", address), UUID(user.user_id)
    if person.roles is not None and set(person.roles) != set(user.roles):
        user = await put_roles(connection, user_id, person.roles, by)
    if person.groups is not None and set(person.groups) != set(user.groups):
        user = await put_groups(connection, user_id, person.groups, by)
    return user


def _registered(row: asyncpg.Record, address: str) -> AuditEntry:
    by = By(str(row["user_id"]), address=address)
    roles, groups = " ".join(row["roles"]), " ".join(row["groups"])
    return by.entry("account.registered", by.actor, right="openid", roles=roles, groups=groups)


def _names(wanted: str) -> Iterator[str]:
    """The name, then the same with a number, then with a unique suffix."""
    yield wanted
    for number in range(2, _NUMBERED + 1):
        yield f"{wanted}-{number}"
    for _ in range(_RANDOM):
        yield f"{wanted}-{secrets.token_hex(4)}"
