"""People who are at the provider's pages: what identity must remember until they come back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import asyncpg
from cryptography.fernet import InvalidToken, MultiFernet

from bos_errors import ResourceExhausted
from bos_identity.opaque_tokens import digest, new_code
from bos_identity.openid.settings import OpenIdSettings
from bos_postgres import acquire, execute, fetchrow, statement_errors

_PREFIX: Final = "boso_"
_RETRY_S: Final = 30.0
# Any number of our own; sign-ins begin one after the other, so that the count is right.
_LOCK: Final = 0x626F73_6F6964
_COUNT: Final = """
SELECT count(*) AS all, count(*) FILTER (WHERE network = $1 AND network <> '') AS own
FROM openid_flows WHERE expires_at > now()
"""
_INSERT: Final = """
INSERT INTO openid_flows
    (handle_digest, kind, sealed, network, expires_at, interval_s)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5), $6)
RETURNING expires_at
"""
_TAKE: Final = """
DELETE FROM openid_flows WHERE handle_digest = $1 AND kind = $2 RETURNING sealed, expires_at > now()
AS good
"""
# One asks the provider at a time, and none before its time.
_POLL: Final = """
UPDATE openid_flows
SET next_poll_at = now() + make_interval(secs => interval_s)
WHERE handle_digest = $1 AND kind = 'device' AND expires_at > now() AND next_poll_at <= now()
RETURNING sealed, interval_s
"""
_LEFT: Final = """
SELECT interval_s FROM openid_flows
WHERE handle_digest = $1 AND kind = 'device' AND expires_at > now()
"""
_SLOWER: Final = """
UPDATE openid_flows
SET interval_s = interval_s + 5, next_poll_at = now() + make_interval(secs => interval_s + 5)
WHERE handle_digest = $1 RETURNING interval_s
"""
_FORGET_OLD: Final = """
DELETE FROM openid_flows WHERE handle_digest IN (
    SELECT handle_digest FROM openid_flows WHERE expires_at < now() LIMIT $1)
"""


@dataclass(frozen=True, slots=True)
class NewFlow:
    """A sign-in that begins."""

    kind: str
    """``code`` or ``device``."""
    secrets: Mapping[str, str] = field(repr=False)
    network: str
    life_s: float
    interval_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Poll:
    """A sign-in on another device that the provider may be asked about now."""

    secrets: Mapping[str, str] = field(repr=False)
    interval_s: float


class Flows:
    """Sign-ins under way, in the store; each is good once.

    Args:
        pool: Connections of the service's own role.
        sealer: Encrypts what they hold; the store never sees it.
        settings: How many there may be.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        sealer: MultiFernet,
        settings: OpenIdSettings,
    ) -> None:
        self._pool = pool
        self._sealer = sealer
        self._most = settings.max_flows
        self._most_address = settings.max_flows_address

    async def check_room(self, network: str) -> None:
        """Refuse to begin where too many have begun.

        Raises:
            ResourceExhausted: They have, from this network or all together.
        """
        self._refuse(await fetchrow(self._pool, _COUNT, network))

    async def begin(self, new: NewFlow) -> tuple[str, datetime]:
        """Remember a sign-in; its handle, which is not kept, and when it expires.

        Raises:
            ResourceExhausted: There are too many, from this network or all together.
        """
        handle = new_code(_PREFIX)
        sealed = self._sealer.encrypt(json.dumps(dict(new.secrets)).encode())
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                async with connection.transaction():
                    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
                    self._refuse(await connection.fetchrow(_COUNT, new.network))
                    expires: datetime = await connection.fetchval(
                        _INSERT,
                        digest(handle),
                        new.kind,
                        sealed,
                        new.network,
                        new.life_s,
                        new.interval_s,
                    )
        return handle, expires

    async def take(self, handle: str, kind: str) -> Mapping[str, str] | None:
        """What a sign-in was begun with, for the first who asks; None if it is not good."""
        row = await fetchrow(self._pool, _TAKE, digest(handle), kind)
        return None if row is None or not row["good"] else self._opened(row["sealed"])

    async def poll(self, handle: str) -> Poll | float | None:
        """What the provider may be asked about; the pause if it is too early, None if not good."""
        row = await fetchrow(self._pool, _POLL, digest(handle))
        if row is not None:
            secrets = self._opened(row["sealed"])
            return None if secrets is None else Poll(secrets, row["interval_s"])
        left = await fetchrow(self._pool, _LEFT, digest(handle))
        return None if left is None else float(left["interval_s"])

    async def slow_down(self, handle: str) -> float:
        """Ask less often from now on, as the provider wants it; the pause."""
        row = await fetchrow(self._pool, _SLOWER, digest(handle))
        return 5.0 if row is None else float(row["interval_s"])

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of those that expired; returns how many."""
        return int((await execute(self._pool, _FORGET_OLD, batch)).rpartition(" ")[2])

    def _opened(self, sealed: bytes) -> Mapping[str, str] | None:
        try:
            secrets: dict[str, str] = json.loads(self._sealer.decrypt(sealed))
        except InvalidToken:
            return None  # of a key that is gone: begun too long ago
        return secrets

    def _refuse(self, counted: Any) -> None:
        if counted["own"] >= self._most_address or counted["all"] >= self._most:
            raise ResourceExhausted(
                "Too many people are signing in; try again in a while.",
                reason="OPENID_BUSY",
                retry_after_s=_RETRY_S,
            )
