"""API keys in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from bos.identity.v1 import ApiKey
from bos_errors import FailedPrecondition, NotFound, ResourceExhausted
from bos_identity.opaque_tokens import digest, new_code
from bos_identity.sessions import Rights
from bos_postgres import acting_for, execute, fetch, fetchrow, for_user
from bos_postgres.audit import deed, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos_postgres.audit import By
    from bos_postgres.connections import Session

MOST_KEYS: Final = 200
"""Good keys of one account."""
LONGEST_TOKEN_S: Final = 60.0
"""Life of the access token that stands for a key: so long one is accepted after it was revoked."""
_PREFIX: Final = "bosk"
_KEPT_S: Final = 30 * 86400.0

_COLUMNS = "key_id, user_id, name, scopes, created_at, expires_at, last_used_at"
_LOCK_OWNER = """
SELECT is_service FROM users WHERE user_id = $1 AND deactivated_at IS NULL FOR NO KEY UPDATE
"""
_COUNT = """
SELECT count(*) FROM api_keys WHERE user_id = $1 AND revoked_at IS NULL AND expires_at > now()
"""
_INSERT = f"""
INSERT INTO api_keys (key_id, user_id, name, secret_digest, scopes, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7))
RETURNING {_COLUMNS}
"""  # noqa: S608  Our own columns.
_GOOD = "revoked_at IS NULL AND expires_at > now()"
_LIST = (
    f"SELECT {_COLUMNS} FROM api_keys WHERE user_id = $1 AND {_GOOD} "  # noqa: S608
    f"ORDER BY created_at DESC, key_id LIMIT {MOST_KEYS}"
)
_LIST_OWN = for_user(_LIST)
_FIND = f"SELECT {_COLUMNS} FROM api_keys WHERE key_id = $1 AND user_id = $2"  # noqa: S608
_REVOKE = "UPDATE api_keys SET revoked_at = coalesce(revoked_at, now()) WHERE key_id = $1"
REVOKE_ALL = """
UPDATE api_keys SET revoked_at = now() WHERE user_id = $1 AND revoked_at IS NULL
"""
"""Ends all keys of a user; within a transaction that keeps others out."""
_EXCHANGE = f"""
WITH good AS (
    SELECT key_id, user_id, scopes, users.roles, users.groups,
           extract(epoch FROM expires_at - now())::float8 AS left_s
    FROM api_keys JOIN users USING (user_id)
    WHERE key_id = $1 AND secret_digest = $2 AND {_GOOD} AND users.deactivated_at IS NULL
), used AS (
    UPDATE api_keys SET last_used_at = date_trunc('hour', now()) FROM good
    WHERE api_keys.key_id = good.key_id
          AND last_used_at IS DISTINCT FROM date_trunc('hour', now())
)
SELECT * FROM good
"""  # noqa: S608
_RIGHTS = f"""
SELECT users.roles, users.groups FROM api_keys JOIN users USING (user_id)
WHERE key_id = $1 AND user_id = $2 AND {_GOOD} AND users.deactivated_at IS NULL
"""  # noqa: S608
_FORGET = """
DELETE FROM api_keys WHERE key_id IN (
    SELECT key_id FROM api_keys WHERE expires_at < now() - make_interval(secs => $1) LIMIT $2)
"""


@dataclass(frozen=True, slots=True)
class GoodKey:
    """A key that may be used, and what its user may do at this moment."""

    key_id: UUID
    user_id: UUID
    scopes: tuple[str, ...]
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    life_s: float
    """How long a token may stand for it."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key to be made."""

    user_id: UUID
    name: str
    scopes: Sequence[str]
    life_s: float
    made_by: UUID


class ApiKeys:
    """Keys of users and of services.

    Args:
        pool: Connections of the service's own role.
        readers: Connections of the role that sees the rows of one user.
    """

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], readers: asyncpg.Pool[asyncpg.Record]
    ) -> None:
        self._pool = pool
        self._readers = readers

    async def make(self, new: NewKey, by: By) -> tuple[ApiKey, str]:
        """A new key, and its text, which is not kept.

        Raises:
            NotFound: There is no such account, or it is closed.
            FailedPrecondition: It is another person's.
            ResourceExhausted: It has too many keys.
        """
        key_id, secret = uuid4(), new_code("")
        given = (key_id, new.user_id, new.name, digest(secret), list(new.scopes), new.made_by)
        # New keys of one account are made in turn, with its deactivation as well.
        async with deed(self._pool) as connection:
            is_service = await connection.fetchval(_LOCK_OWNER, new.user_id)
            if is_service is None:
                raise NotFound("There is no such user.")
            if new.user_id != new.made_by and not is_service:
                raise FailedPrecondition(
                    "Keys of people are made by themselves; this is no service account.",
                    reason="NOT_A_SERVICE_ACCOUNT",
                )
            if await connection.fetchval(_COUNT, new.user_id) >= MOST_KEYS:
                raise ResourceExhausted(
                    f"The account has {MOST_KEYS} keys; revoke some first.",
                    reason="TOO_MANY_API_KEYS",
                )
            row = await connection.fetchrow(_INSERT, *given, new.life_s)
            assert row is not None
            whose, scopes = str(new.user_id), " ".join(row["scopes"])
            entry = by.entry("api_key.created", str(key_id), key_of=whose, scopes=scopes)
            await record(connection, [entry])
        return _key(row), f"{_PREFIX}_{key_id.hex}_{secret}"

    async def list_own(self, user_id: UUID) -> list[ApiKey]:
        """The good keys of the caller, the newest first."""
        return [_key(row) for row in await fetch(self._readers, _LIST_OWN, str(user_id), user_id)]

    async def find(self, key_id: UUID, user_id: UUID) -> ApiKey | None:
        """A key of the user, good or not."""
        row = await fetchrow(self._pool, _FIND, key_id, user_id)
        return None if row is None else _key(row)

    async def list_of(self, user_id: UUID) -> list[ApiKey]:
        """The good keys of any account, for administrators."""
        return [_key(row) for row in await fetch(self._pool, _LIST, user_id)]

    async def revoke_own(self, key_id: UUID, user_id: UUID, by: By) -> bool:
        """End a key of the caller; whether there is one."""
        async with acting_for(self._readers, str(user_id)) as connection:
            return await _revoked(connection, key_id, by)

    async def revoke_any(self, key_id: UUID, by: By) -> bool:
        """End a key of any user, for administrators; whether there is one."""
        async with deed(self._pool) as connection:
            return await _revoked(connection, key_id, by)

    async def exchange(self, text: str) -> GoodKey | None:
        """The key that ``text`` is, if it may be used; notes that it was."""
        prefix, _, rest = text.partition("_")
        key_text, _, secret = rest.partition("_")
        try:
            key_id = UUID(hex=key_text)
        except ValueError:
            return None
        if prefix != _PREFIX or not secret:
            return None
        row = await fetchrow(self._pool, _EXCHANGE, key_id, digest(secret))
        if row is None:
            return None
        return GoodKey(
            row["key_id"],
            row["user_id"],
            tuple(row["scopes"]),
            tuple(row["roles"]),
            tuple(row["groups"]),
            max(1.0, min(LONGEST_TOKEN_S, row["left_s"])),
        )

    async def rights(self, key_id: UUID, user_id: UUID) -> Rights | None:
        """What the user of a good key may do; None if it may not be used any more."""
        row = await fetchrow(self._pool, _RIGHTS, key_id, user_id)
        return None if row is None else Rights(frozenset(row["roles"]), frozenset(row["groups"]))

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of keys that expired long ago; returns how many."""
        return int((await execute(self._pool, _FORGET, _KEPT_S, batch)).rpartition(" ")[2])


async def _revoked(connection: Session, key_id: UUID, by: By) -> bool:
    if await connection.execute(_REVOKE, key_id) != "UPDATE 1":
        return False
    await record(connection, [by.entry("api_key.revoked", str(key_id))])
    return True


def _key(row: asyncpg.Record) -> ApiKey:
    key = ApiKey(
        key_id=str(row["key_id"]),
        user_id=str(row["user_id"]),
        name=row["name"],
        scopes=row["scopes"],
    )
    key.create_time.FromDatetime(row["created_at"])
    key.expire_time.FromDatetime(row["expires_at"])
    if row["last_used_at"] is not None:
        key.last_use_time.FromDatetime(row["last_used_at"])
    return key
