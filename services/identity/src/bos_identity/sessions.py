"""Sessions and their refresh tokens in the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

import asyncpg

from bos.identity.v1 import Session, SignInMethod
from bos_errors import NotFound
from bos_identity.account import Account
from bos_identity.settings import IdentitySettings
from bos_postgres import acquire, acting_for, fetch, fetchrow, fetchval, for_user, statement_errors
from bos_postgres.audit import By, deed, record, unauthenticated

MOST_LISTED = 200
_BY_PASSWORD = SignInMethod.SIGN_IN_METHOD_PASSWORD
_BY_OPENID = SignInMethod.SIGN_IN_METHOD_OPEN_ID
ENDED = "session.ended"
"""In the audit trail. What ends all sessions of a user has an entry that says so itself."""
# A refresh token that is used again later than this is refused like any unknown one.
_USED_KEPT_S = 7 * 86400.0
# Sessions that have ended stay for people who ask what happened.
_ENDED_KEPT_S = 30 * 86400.0

_COLUMNS = (
    "session_id, user_id, started_at, last_used_at, expires_at,"
    " is_active AND expires_at > now() AS active, client_address, client_name, openid_issuer"
)
# A change of the password ends all sessions: none may slip in behind that which was opened by
# the password before. Either this waits for the change, or the change for this. And logins of one
# user take turns, so that each sees how many sessions there are.
_LOCK_ACCOUNT = """
SELECT roles, groups FROM users
WHERE user_id = $1 AND password_changed_at = $2 AND deactivated_at IS NULL
FOR NO KEY UPDATE
"""
_OPEN = f"""
WITH opened AS (
    INSERT INTO sessions
        (session_id, user_id, expires_at, client_address, client_network, client_name,
         openid_issuer)
    VALUES ($1, $2, now() + make_interval(secs => $3), $4, $5, $6, $11)
    RETURNING {_COLUMNS}
), issued AS (
    INSERT INTO refresh_tokens (token_digest, session_id) SELECT $7, session_id FROM opened
), surplus AS (
    UPDATE sessions SET is_active = false, ended_at = now(), end_reason = 'too_many'
    WHERE session_id IN (
        SELECT session_id FROM sessions
        WHERE user_id = $2 AND is_active AND expires_at > now()
        ORDER BY last_used_at DESC, session_id OFFSET $8)
    RETURNING session_id
)
SELECT *, $9::text[] AS roles, $10::text[] AS groups, ARRAY(SELECT session_id FROM surplus) AS ended
FROM opened
"""  # noqa: S608  Our own columns.
_WAS_THERE = """
SELECT EXISTS (SELECT FROM sessions WHERE user_id = $1 AND client_network = $2)
"""
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
# What the user may do is read anew with each refresh.
_REFRESHED = """
SELECT refreshed.*, users.roles, users.groups
FROM refreshed JOIN users USING (user_id) WHERE users.deactivated_at IS NULL
"""
# The first of two that bring the same token gets past the row's lock with the token unused.
_REFRESH = f"""
WITH used AS (
    UPDATE refresh_tokens SET used_at = now(), successor_digest = $2
    WHERE token_digest = $1 AND used_at IS NULL
    RETURNING session_id
), {_ISSUE}
{_REFRESHED}
"""  # noqa: S608
# A used token is good again while the answer to its use may have been lost: not for long, and only
# if what was issued is unused. That is void from now on, and its use ends the session.
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
{_REFRESHED}
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
END_OTHERS = """
UPDATE sessions SET is_active = false, ended_at = now(), end_reason = $3
WHERE is_active AND user_id = $1 AND session_id IS DISTINCT FROM $2
"""
"""Ends all sessions of a user but one, for a reason; within a transaction that keeps others out."""
_PRESENT = """
SELECT users.roles, users.groups FROM sessions JOIN users USING (user_id)
WHERE session_id = $1 AND user_id = $2 AND is_active AND expires_at > now()
      AND users.deactivated_at IS NULL
"""
_IS_FRESH = """
SELECT EXISTS (
    SELECT FROM sessions
    WHERE session_id = $1 AND user_id = $2 AND is_active AND openid_issuer = $3
          AND started_at > now() - make_interval(secs => $4))
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
class Origin:
    """Where a sign-in comes from; both empty if unknown."""

    address: str
    network: str
    """What is slowed down together."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session of a user."""

    session_id: UUID
    user_id: UUID
    expires_at: datetime
    session: Session
    roles: tuple[str, ...] = ()
    """Of the user at this moment, where tokens are issued."""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights of a user at this moment."""

    roles: frozenset[str]
    groups: frozenset[str]


class Sessions:
    """Sessions of users, opened by sign-ins.

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
        self._most = settings.max_sessions

    async def open(
        self,
        account: Account,
        token_digest: bytes,
        origin: Origin,
        client_name: str,
        openid_issuer: str = "",
    ) -> StoredSession | None:
        """Open a session whose first refresh token has this digest.

        A user who has too many loses the one that was used last longest ago.

        Args:
            account: Whose it is.
            token_digest: Of the refresh token.
            origin: Where they sign in from.
            client_name: What their client calls itself.
            openid_issuer: The provider that they signed in by; empty: by the password.

        Returns:
            None if the account has another password by now, or was deactivated.
        """
        by = By(str(account.user_id), address=origin.address)
        async with deed(self._pool) as connection:
            rights = await connection.fetchrow(
                _LOCK_ACCOUNT, account.user_id, account.password_changed_at
            )
            if rights is None:
                return None
            row = await connection.fetchrow(
                _OPEN,
                uuid4(),
                account.user_id,
                min(self._idle_s, self._max_s),
                origin.address,
                origin.network,
                client_name,
                token_digest,
                self._most - 1,
                rights["roles"],
                rights["groups"],
                openid_issuer,
            )
            assert row is not None
            opened = by.entry("session.opened", str(row["session_id"]))
            ended = [by.entry(ENDED, str(each), reason="too_many") for each in row["ended"]]
            await record(connection, [opened, *ended])
        return _stored(row)

    async def was_there(self, user_id: UUID, network: str) -> bool:
        """Whether the user has signed in from this network before, as far as is known."""
        return bool(await fetchval(self._pool, _WAS_THERE, user_id, network))

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

    async def end_if_reused(self, token_digest: bytes, address: str = "") -> bool:
        """End the session of a token that was used before; whether there was one to end."""
        async with deed(self._pool) as connection:
            row = await connection.fetchrow(_END_REUSED, token_digest)
            if row is None:
                return False
            whose, reason = str(row["user_id"]), "token_reused"
            entry = unauthenticated(address).entry(
                ENDED, str(row["session_id"]), reason=reason, session_of=whose
            )
            await record(connection, [entry])
        return True

    async def end(self, token_digest: bytes, address: str = "") -> None:
        """End the session that the token belongs to, if it is open."""
        async with deed(self._pool) as connection:
            row = await connection.fetchrow(_END, token_digest, "logged_out")
            if row is not None:
                by = By(str(row["user_id"]), address=address)
                entry = by.entry(ENDED, str(row["session_id"]), reason="logged_out")
                await record(connection, [entry])

    async def rights(self, session_id: UUID, user_id: UUID) -> Rights | None:
        """What the user of an open session may do; None if it is not open."""
        row = await self._row(_PRESENT, session_id, user_id)
        return None if row is None else Rights(frozenset(row["roles"]), frozenset(row["groups"]))

    async def find(self, session_id: UUID, user_id: UUID) -> StoredSession | None:
        """A session of the user, open or not."""
        row = await self._row(_FIND, session_id, user_id)
        return None if row is None else _stored(row)

    async def is_fresh(
        self, session_id: UUID, user_id: UUID, openid_issuer: str, within_s: float
    ) -> bool:
        """Whether an open session was begun by the provider in this time; using it adds nothing."""
        given = (session_id, user_id, openid_issuer, within_s)
        return bool(await fetchval(self._pool, _IS_FRESH, *given))

    async def list(self, user_id: UUID) -> list[StoredSession]:
        """The user's open sessions, the one used last first."""
        rows = await fetch(self._readers, _LIST, str(user_id))
        return [_stored(row) for row in rows]

    async def revoke(self, session_id: UUID, user_id: UUID, by: By) -> StoredSession:
        """End a session of the user; one that has ended already stays as it is.

        Raises:
            NotFound: The user has no such session.
        """
        async with acting_for(self._readers, str(user_id)) as connection:
            if await connection.execute(_REVOKE, session_id, user_id) == "UPDATE 1":
                await record(connection, [by.entry(ENDED, str(session_id), reason="revoked")])
            row = await connection.fetchrow(_FIND, session_id, user_id)
        if row is None:
            raise no_session(str(session_id))
        return _stored(row)

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of sessions that ended long ago; returns how many rows that were."""
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
    """The same error for a session that does not exist and for one of another user."""
    return NotFound("There is no such session.", metadata={"session_id": session_id})


def _stored(row: asyncpg.Record) -> StoredSession:
    session = Session(
        session_id=str(row["session_id"]),
        active=row["active"],
        client_address=row["client_address"],
        client_name=row["client_name"],
        method=_BY_OPENID if row["openid_issuer"] else _BY_PASSWORD,
        open_id_issuer=row["openid_issuer"],
    )
    session.start_time.FromDatetime(row["started_at"])
    session.last_use_time.FromDatetime(row["last_used_at"])
    session.expire_time.FromDatetime(row["expires_at"])
    return StoredSession(
        row["session_id"],
        row["user_id"],
        row["expires_at"],
        session,
        tuple(row.get("roles", ())),
        tuple(row.get("groups", ())),
    )
