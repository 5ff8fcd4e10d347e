"""Accounts that are being deleted, in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg

from bos.identity.v1 import DeleteUserResponse
from bos_errors import FailedPrecondition
from bos_identity.accounts import LOCAL_USER_ID
from bos_identity.administration.users import LAST_LOCK, ONE_IS_LEFT, last_administrator, no_user
from bos_identity.api_keys.store import REVOKE_ALL
from bos_identity.sessions import END_OTHERS
from bos_postgres import execute, fetchrow
from bos_postgres.audit import By, deed, record, record_alone

_COLUMNS = "requested_at, erased_at, ends_at, waiting_for"
_FIND = f"SELECT {_COLUMNS} FROM account_deletions WHERE user_id = $1"  # noqa: S608  Our own columns.
_EXISTS = "SELECT EXISTS (SELECT FROM users WHERE user_id = $1)"
# Personal data go at once; the username stays taken until nothing is left.
_CLOSE = f"""
UPDATE users
SET deleting = true, deactivated_at = coalesce(deactivated_at, now()), password = NULL,
    email = NULL, display_name = '', roles = '{{}}', groups = '{{}}'
WHERE user_id = $1 AND {ONE_IS_LEFT}
RETURNING user_id
"""  # noqa: S608
_VOID_RESETS = "DELETE FROM password_resets WHERE $1 IN (user_id, created_by)"
_VOID_INVITATIONS = "DELETE FROM invitations WHERE $1 IN (created_by, used_by)"
_UNLINK = "DELETE FROM external_identities WHERE user_id = $1"
_DISCONNECT = "DELETE FROM connections WHERE user_id = $1"
_BEGIN = f"""
INSERT INTO account_deletions (user_id, ends_at) VALUES ($1, now() + make_interval(secs => $2))
RETURNING {_COLUMNS}
"""  # noqa: S608
# The replica that takes one has a minute; if nothing is heard by then, the next one takes it.
_TAKE = """
UPDATE account_deletions SET next_at = now() + make_interval(secs => $1)
WHERE user_id = (
    SELECT user_id FROM account_deletions WHERE next_at <= now()
    ORDER BY next_at LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING user_id, failures, ends_at <= now() AS is_over
"""
_WAIT = """
UPDATE account_deletions
SET next_at = now() + make_interval(secs => $2), waiting_for = $3,
    failures = CASE WHEN $4 THEN failures + 1 ELSE 0 END
WHERE user_id = $1
"""
_ERASED = """
UPDATE account_deletions
SET erased_at = coalesce(erased_at, now()), next_at = ends_at, waiting_for = '', failures = 0
WHERE user_id = $1
"""
# Of keys that it made for services, and of having been first, only a placeholder stays.
_FORGET_MAKER = (
    "UPDATE api_keys SET created_by = user_id WHERE created_by = $1 AND user_id <> $1",
    "UPDATE founder SET founder_id = '00000000-0000-0000-0000-000000000000' WHERE founder_id = $1",
    _VOID_RESETS,
    _VOID_INVITATIONS,
)
_REMOVE = "DELETE FROM users WHERE user_id = $1 AND deleting"
_PENDING = """
SELECT count(*) AS pending,
       coalesce(extract(epoch FROM now() - min(requested_at)), 0)::float8 AS oldest_s
FROM account_deletions
"""


_IDENTITY: Final = By("identity", "service")


@dataclass(frozen=True, slots=True)
class Taken:
    """A deletion that this replica goes on with."""

    user_id: UUID
    failures: int
    """Attempts without success, one after the other."""
    is_over: bool
    """Whether no access token of the account can be valid any more."""


class AccountDeletions:
    """Pending steps of account deletions.

    Args:
        pool: Connections of the service's own role.
        tokens_end_s: After how long no access token issued until now is valid any more.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], tokens_end_s: float) -> None:
        self._pool = pool
        self._tokens_end_s = tokens_end_s

    async def begin(self, user_id: UUID, by: By) -> DeleteUserResponse:
        """Close the account for good, all at once; done already, return how far its deletion is.

        Raises:
            NotFound: There is no such account, or not any more.
            FailedPrecondition: No administrator would be left, or it is the local user.
        """
        if user_id == LOCAL_USER_ID:
            raise FailedPrecondition(
                "The local user has no account of its own to delete.", reason="LOCAL_USER"
            )
        # As deactivating: sign-ins and new keys lock the account first.
        async with deed(self._pool) as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", LAST_LOCK)
            if found := await connection.fetchrow(_FIND, user_id):
                return _response(found)
            if await connection.fetchval(_CLOSE, user_id) is None:
                if not await connection.fetchval(_EXISTS, user_id):
                    raise no_user()
                raise last_administrator()
            await connection.execute(END_OTHERS, user_id, None, "deleted")
            await connection.execute(REVOKE_ALL, user_id)
            await connection.execute(_VOID_RESETS, user_id)
            await connection.execute(_VOID_INVITATIONS, user_id)
            await connection.execute(_UNLINK, user_id)
            await connection.execute(_DISCONNECT, user_id)
            row = await connection.fetchrow(_BEGIN, user_id, self._tokens_end_s)
            await record(connection, [by.entry("account.deletion_requested", str(user_id))])
        assert row is not None
        return _response(row)

    async def take(self, lease_s: float) -> Taken | None:
        """One that is due, leased for ``lease_s`` seconds; None if none is."""
        row = await fetchrow(self._pool, _TAKE, lease_s)
        return None if row is None else Taken(row["user_id"], row["failures"], row["is_over"])

    async def wait(self, user_id: UUID, after_s: float, waiting_for: str, *, failed: bool) -> None:
        """Go on with it later."""
        await execute(self._pool, _WAIT, user_id, after_s, waiting_for, failed)

    async def erased(self, user_id: UUID) -> None:
        """All services have deleted what they held: once more when no token is valid any more."""
        await execute(self._pool, _ERASED, user_id)

    async def end(self, user_id: UUID) -> None:
        """Remove the account itself, with all that hangs on it; the deletion is over."""
        async with deed(self._pool) as connection:
            for statement in _FORGET_MAKER:
                await connection.execute(statement, user_id)
            if await connection.execute(_REMOVE, user_id) != "DELETE 0":
                await record(connection, [_IDENTITY.entry("account.deleted", str(user_id))])

    async def exported(self, user_id: UUID, by: By) -> None:
        """Write to the audit trail that everything of an account was exported."""
        await record_alone(self._pool, by.entry("account.exported", str(user_id)))

    async def pending(self) -> tuple[int, float]:
        """How many there are, and the age of the oldest one in seconds."""
        row = await fetchrow(self._pool, _PENDING)
        assert row is not None
        return row["pending"], row["oldest_s"]


def _response(row: asyncpg.Record) -> DeleteUserResponse:
    response = DeleteUserResponse(waiting_for=row["waiting_for"])
    response.request_time.FromDatetime(row["requested_at"])
    response.earliest_end_time.FromDatetime(row["ends_at"])
    if row["erased_at"] is not None:
        response.erase_time.FromDatetime(row["erased_at"])
    return response
