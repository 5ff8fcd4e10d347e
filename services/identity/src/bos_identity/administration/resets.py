"""Codes that set a new password once."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg

from bos_errors import FailedPrecondition
from bos_identity.administration.makers import MAY_NOT_ADMINISTER
from bos_identity.administration.users import no_user
from bos_identity.api_keys.store import REVOKE_ALL
from bos_identity.credentials.callers import no_administrator
from bos_identity.opaque_tokens import digest, new_code
from bos_identity.sessions import END_OTHERS
from bos_identity.settings import IdentitySettings
from bos_postgres import execute, fetchval
from bos_postgres.audit import By, deed, record

_PREFIX: Final = "bosp_"  # so that scanners for leaked secrets recognise them

# In one order, so that two who make codes for each other do not wait for each other.
_LOCK_ACCOUNTS = f"""
SELECT user_id, password IS NOT NULL AND deactivated_at IS NULL AS usable,
       {MAY_NOT_ADMINISTER} AS barred
FROM users WHERE user_id = ANY($1) ORDER BY user_id
FOR NO KEY UPDATE
"""  # noqa: S608  Our own text.
_INSERT = """
INSERT INTO password_resets (code_digest, user_id, created_by, expires_at)
VALUES ($1, $2, $3, now() + make_interval(secs => $4))
ON CONFLICT (user_id) DO UPDATE SET
    code_digest = EXCLUDED.code_digest, created_by = EXCLUDED.created_by, created_at = now(),
    expires_at = EXCLUDED.expires_at
RETURNING expires_at
"""
_OWNER = "SELECT user_id FROM password_resets WHERE code_digest = $1 AND expires_at > now()"
# The account first, as everywhere, so that there is no deadlock.
_LOCK_OWNER = """
SELECT FROM users WHERE user_id = (SELECT user_id FROM password_resets WHERE code_digest = $1)
FOR NO KEY UPDATE
"""
_USE = "DELETE FROM password_resets WHERE code_digest = $1 AND expires_at > now() RETURNING user_id"
_SET = """
UPDATE users SET password = $2, password_changed_at = now()
WHERE user_id = $1 AND password IS NOT NULL AND deactivated_at IS NULL
"""
_FORGET = """
DELETE FROM password_resets WHERE code_digest IN (
    SELECT code_digest FROM password_resets WHERE expires_at < now() LIMIT $1)
"""


class Resets:
    """Codes of administrators for people who cannot sign in.

    Args:
        pool: Connections of the service's own role.
        settings: How long they can be used.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], settings: IdentitySettings) -> None:
        self._pool = pool
        self._life_s = settings.password_reset_s

    async def make(self, user_id: UUID, made_by: UUID, by: By) -> tuple[str, datetime]:
        """A new code for the account, which voids the one before, and when it expires.

        Raises:
            NotFound: There is no such account.
            FailedPrecondition: It has no password, or is closed.
            PermissionDenied: The caller has ceased to be an administrator just now.
        """
        code = new_code(_PREFIX)
        async with deed(self._pool) as connection:
            rows = await connection.fetch(_LOCK_ACCOUNTS, [user_id, made_by])
            locked = {row["user_id"]: row for row in rows}
            if made_by in locked and locked[made_by]["barred"]:
                raise no_administrator()
            if user_id not in locked:
                raise no_user()
            if not locked[user_id]["usable"]:
                raise FailedPrecondition(
                    "This account has no password, or is deactivated.", reason="NO_PASSWORD"
                )
            expires: datetime = await connection.fetchval(
                _INSERT, digest(code), user_id, made_by, self._life_s
            )
            await record(connection, [by.entry("password.reset_issued", str(user_id))])
        return code, expires

    async def owner(self, code: str) -> UUID | None:
        """Whose password the code sets; None if it cannot be used."""
        owner: UUID | None = await fetchval(self._pool, _OWNER, digest(code))
        return owner

    async def use(self, code: str, password: str, address: str = "") -> bool:
        """Set the password by its hash, and end all sessions and keys: all of it, or nothing.

        Returns:
            False if the code cannot be used any more.
        """
        async with deed(self._pool) as connection:
            await connection.execute(_LOCK_OWNER, digest(code))
            user_id = await connection.fetchval(_USE, digest(code))
            if user_id is None:
                return False
            if await connection.execute(_SET, user_id, password) != "UPDATE 1":
                return False
            await connection.execute(END_OTHERS, user_id, None, "password_reset")
            await connection.execute(REVOKE_ALL, user_id)
            by = By(str(user_id), address=address)
            await record(connection, [by.entry("password.reset", str(user_id))])
        return True

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of those that have expired; returns how many."""
        return int((await execute(self._pool, _FORGET, batch)).rpartition(" ")[2])
