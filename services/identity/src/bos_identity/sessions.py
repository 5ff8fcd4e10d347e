"""Sessions and their refresh tokens in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from bos.identity.v1 import Session
from bos_chassis.errors import NotFound
from bos_postgres import acquire, acting_for, execute, fetch, fetchrow, for_user, statement_errors

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from bos_identity.accounts import Account
    from bos_identity.settings import IdentitySettings

MOST_LISTED = 200
# A refresh token that is used again later than this is refused like any unknown one.
_USED_KEPT_S = 7 * 86400.0
# Sessions that have ended stay for people who ask what happened.
_ENDED_KEPT_S = 30 * 86400.0

_COLUMNS = (
    "session_id, user_id, started_at, last_used_at, expires_at,"
    " is_active AND expires_at > now() AS active, client_address, client_name"
)
# Whoever changes the password ends all sessions: none may slip in behind that which was opened by
# the password before. Either this waits for the change, or the change for this.
_OPEN = f"""
WITH account AS (
    SELECT user_id FROM users WHERE user_id = $2 AND password_changed_at = $7 FOR SHARE
), opened AS (
    INSERT INTO sessions (session_id, user_id, expires_at, client_address, client_name)
    SELECT $1, user_id, now() + make_interval(secs => $3), $4, $5 FROM account
    RETURNING {_COLUMNS}
), issued AS (
    INSERT INTO refresh_tokens (token_digest, session_id) SELECT $6, session_id FROM opened
)
SELECT * FROM opened
"""  # noqa: S608  Our own columns.
_ISSUE = f"""refreshed AS (
    UPDATE sessions AS s
    SET last_used_at = now(),
        expires_at = least(now() + make_interval(secs => $3),
                           s.started_at + make_interval(secs => $4))
    FROM used
    WHERE s.session_id = used.session_id AND s.is_active AND s.expires_at > now()
    RETURNING s.session_id, {_COLUMNS.removeprefix("session_id, ")}
), issued AS (
    INSERT INTO refresh_tokens (token_digest, session_id) SELECT $2, session_id FROM refreshed
)
"""  # noqa: S608
# The first of two that bring the same token gets past the row's lock with the token unused.
_REFRESH = f"""
WITH used AS (
    UPDATE refresh_tokens SET used_at = now(), successor_digest = $2
    WHERE token_digest = $1 AND used_at IS NULL
    RETURNING session_id
), {_ISSUE}
SELECT * FROM refreshed
"""  # noqa: S608
# A used token is good again while the answer to its use may have been lost: not for long, and only
# if nobody used what was issued. That is void from now on, and whoever uses it ends the session.
# First the lock, then a statement that sees what others did before it was granted.
_LOCK_USED = """
SELECT successor_digest FROM refresh_tokens
WHERE token_digest = $1 AND used_at > now() - make_interval(secs => $2)
FOR UPDATE
"""
_REPEAT = f"""
WITH used AS (
    UPDATE refresh_tokens SET used_at = now()
    WHERE token_digest = $5 AND used_at IS NULL
    RETURNING session_id
), {_ISSUE}, linked AS (
    UPDATE refresh_tokens AS t SET successor_digest = $2 FROM refreshed WHERE t.token_digest = $1
)
SELECT * FROM refreshed
"""  # noqa: S608
_END = """
UPDATE sessions SET is_active = false, ended_at = now(), end_reason = $2
WHERE is_active AND session_id = (
    SELECT session_id FROM refresh_tokens WHERE token_digest = $1)
RETURNING session_id, user_id
"""
_END_REUSED = """
UPDATE sessions SET is_active = false, ended_at = now(), end_reason = 'token_reused'
WHERE is_active AND session_id = (
    SELECT session_id FROM refresh_tokens WHERE token_digest = $1 AND used_at IS NOT NULL)
RETURNING session_id, user_id
"""
_END_OTHERS = """
UPDATE sessions SET is_active = false, ended_at = now(), end_reason = 'password_changed'
WHERE is_active AND user_id = $1 AND session_id IS DISTINCT FROM $2
"""
_IS_OPEN = """
SELECT EXISTS (SELECT FROM sessions
               WHERE session_id = $1 AND user_id = $2 AND is_active AND expires_at > now())
"""
_LIST = for_user(
    f"SELECT {_COLUMNS} FROM sessions WHERE is_active AND expires_at > now() "  # noqa: S608
    f"ORDER BY last_used_at DESC, session_id LIMIT {MOST_LISTED}"
)
_REVOKE = """
UPDATE sessions SET is_active = false, ended_at = now(), end_reason = 'revoked'
WHERE session_id = $1 AND user_id = $2 AND is_active
"""
_FIND = f"SELECT {_COLUMNS} FROM sessions WHERE session_id = $1 AND user_id = $2"  # noqa: S608
_FORGET_TOKENS = """
DELETE FROM refresh_tokens WHERE token_digest IN (
    SELECT token_digest FROM refresh_tokens
    WHERE used_at < now() - make_interval(secs => $1) LIMIT $2)
"""
_FORGET_SESSIONS = """
DELETE FROM sessions WHERE session_id IN (
    SELECT session_id FROM sessions
    WHERE expires_at < now() - make_interval(secs => $1) LIMIT $2)
"""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session of a user."""

    session_id: UUID
    user_id: UUID
    expires_at: datetime
    session: Session


class Sessions:
    """What logins open.

    Args:
        pool: Connections of the service's own role.
        readers: Connections of the role that sees the rows of one user.
        settings: How long sessions live.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        readers: asyncpg.Pool[asyncpg.Record],
        settings: IdentitySettings,
    ) -> None:
        self._pool = pool
        self._readers = readers
        self._idle_s = settings.session_idle_s
        self._max_s = settings.session_max_s
        self._repeat_s = settings.refresh_repeat_s

    async def open(
        self, account: Account, token_digest: bytes, client_address: str, client_name: str
    ) -> StoredSession | None:
        """Open a session whose first refresh token has this digest.

        Returns:
            None if the account has another password by now.
        """
        row = await self._row(
            _OPEN,
            uuid4(),
            account.user_id,
            min(self._idle_s, self._max_s),
            client_address,
            client_name,
            token_digest,
            account.password_changed_at,
        )
        return None if row is None else _stored(row)

    async def refresh(self, used: bytes, issued: bytes) -> StoredSession | None:
        """Exchange a refresh token for the next one; None if it cannot be used."""
        row = await self._row(_REFRESH, used, issued, self._idle_s, self._max_s)
        return None if row is None else _stored(row)

    async def repeat(self, used: bytes, issued: bytes) -> StoredSession | None:
        """Exchange a refresh token once more, in place of what was issued for it just now.

        Returns:
            None if it was not used before, or too long ago, or if that which was issued is in use.
        """
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                async with connection.transaction():
                    successor = await connection.fetchval(_LOCK_USED, used, self._repeat_s)
                    row = await connection.fetchrow(
                        _REPEAT, used, issued, self._idle_s, self._max_s, successor
                    )
        return None if row is None else _stored(row)

    async def end_if_reused(self, token_digest: bytes) -> bool:
        """End the session of a token that was used before; whether there was one to end."""
        return await self._row(_END_REUSED, token_digest) is not None

    async def end(self, token_digest: bytes) -> None:
        """End the session that the token belongs to, if it is open."""
        await self._row(_END, token_digest, "logged_out")

    async def end_others(self, user_id: UUID, kept: UUID | None) -> None:
        """End all sessions of the user but one."""
        await execute(self._pool, _END_OTHERS, user_id, kept)

    async def is_open(self, session_id: UUID, user_id: UUID) -> bool:
        """Whether the user's session is open."""
        row = await self._row(_IS_OPEN, session_id, user_id)
        return row is not None and bool(row[0])

    async def list(self, user_id: UUID) -> list[StoredSession]:
        """The user's open sessions, the one used last first."""
        rows = await fetch(self._readers, _LIST, str(user_id))
        return [_stored(row) for row in rows]

    async def revoke(self, session_id: UUID, user_id: UUID) -> StoredSession:
        """End a session of the user; one that has ended already stays as it is.

        Raises:
            NotFound: The user has no such session.
        """
        async with acting_for(self._readers, str(user_id)) as connection:
            await connection.execute(_REVOKE, session_id, user_id)
            row = await connection.fetchrow(_FIND, session_id, user_id)
        if row is None:
            raise no_session(str(session_id))
        return _stored(row)

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of what nobody asks for any more; returns how many rows that were."""
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                done = [
                    await connection.execute(_FORGET_TOKENS, _USED_KEPT_S, batch),
                    await connection.execute(_FORGET_SESSIONS, _ENDED_KEPT_S, batch),
                ]
        return sum(int(status.rpartition(" ")[2]) for status in done)

    async def _row(self, sql: str, *arguments: object) -> asyncpg.Record | None:
        return await fetchrow(self._pool, sql, *arguments)


def no_session(session_id: str) -> NotFound:
    """What everybody hears about a session that is not theirs, whether it exists or not."""
    return NotFound("There is no such session.", metadata={"session_id": session_id})


def _stored(row: asyncpg.Record) -> StoredSession:
    session = Session(
        session_id=str(row["session_id"]),
        active=row["active"],
        client_address=row["client_address"],
        client_name=row["client_name"],
    )
    session.start_time.FromDatetime(row["started_at"])
    session.last_use_time.FromDatetime(row["last_used_at"])
    session.expire_time.FromDatetime(row["expires_at"])
    return StoredSession(row["session_id"], row["user_id"], row["expires_at"], session)
