"""Slowing down who guesses passwords, on all replicas together and across restarts.

An attempt is counted as failed before the password is looked at, so that a hundred at once are a
hundred failures and not one. Success takes the count back. Beyond the free attempts each failure
doubles the wait. While a subject has to wait its attempts are refused and not counted: waiting is
the price, and a stubborn client does not lock itself out for longer.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_chassis.errors import ResourceExhausted
from bos_postgres import acquire, execute, statement_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    from bos_identity.settings import IdentitySettings

# Counts the attempt, unless the subject has to wait: then it changes and returns nothing. By the
# clock, as the transaction may have begun before one that it had to let go first.
_COUNT = """
INSERT INTO login_throttle AS t (subject, failures, blocked_until, updated_at)
VALUES ($1, 1, clock_timestamp() + make_interval(secs => CASE WHEN $2 > 1 THEN 0 ELSE $3 END),
        clock_timestamp())
ON CONFLICT (subject) DO UPDATE SET
    failures = CASE WHEN t.updated_at < clock_timestamp() - make_interval(secs => $5) THEN 1
                    ELSE t.failures + 1 END,
    blocked_until = clock_timestamp() + make_interval(secs => CASE
        WHEN t.updated_at < clock_timestamp() - make_interval(secs => $5) AND $2 > 1 THEN 0
        WHEN t.failures + 1 < $2 THEN 0
        ELSE least($4, $3 * power(2, least(t.failures + 1 - $2, 30))) END),
    updated_at = clock_timestamp()
WHERE t.blocked_until <= clock_timestamp()
RETURNING failures
"""
_LEFT = """
SELECT extract(epoch FROM blocked_until - clock_timestamp())::float8
FROM login_throttle WHERE subject = $1
"""
_FORGIVE = """
UPDATE login_throttle SET failures = greatest(0, failures - 1), blocked_until = now()
WHERE subject = $1
"""
_FORGET = "DELETE FROM login_throttle WHERE subject = $1"
_FORGET_OLD = """
DELETE FROM login_throttle WHERE subject IN (
    SELECT subject FROM login_throttle
    WHERE updated_at < now() - make_interval(secs => $1) LIMIT $2)
"""


@dataclass(frozen=True, slots=True)
class Subject:
    """Who attempts: an account, or an address."""

    digest: bytes
    free_attempts: int


class Throttle:
    """Attempts to sign in, in the store.

    Args:
        pool: Connections whose search path is the service's schema.
        settings: How many attempts are free, and the waits.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], settings: IdentitySettings) -> None:
        self._pool = pool
        self._settings = settings

    def account(self, name: str) -> Subject:
        """The account that somebody signs in to, whether it exists or not."""
        return _subject("account", name.lower(), self._settings.account_attempts)

    def address(self, address: str) -> Subject:
        """Where somebody signs in from."""
        return _subject("address", address, self._settings.address_attempts)

    def registration(self, address: str) -> Subject:
        """Where somebody makes accounts from."""
        return _subject("registration", address, self._settings.address_attempts)

    async def begin(self, subjects: Sequence[Subject]) -> None:
        """Count an attempt by all of them as failed, or by none if one has to wait.

        Raises:
            ResourceExhausted: One of them has to wait; says how long.
        """
        async with acquire(self._pool) as connection:
            # All or nothing: an attempt that is refused for one of them must cost none of them.
            with statement_errors(connection):
                async with connection.transaction():
                    # In one order everywhere, so that no two attempts wait for each other.
                    for subject in sorted(subjects, key=lambda subject: subject.digest):
                        await self._count(connection, subject)

    async def _count(
        self, connection: PoolConnectionProxy[asyncpg.Record], subject: Subject
    ) -> None:
        counted = await connection.fetchval(
            _COUNT,
            subject.digest,
            subject.free_attempts,
            self._settings.throttle_first_s,
            self._settings.throttle_max_s,
            self._settings.throttle_forget_s,
        )
        if counted is None:
            raise _wait(await connection.fetchval(_LEFT, subject.digest))

    async def succeeded(self, account: Subject, *others: Subject) -> None:
        """The attempt succeeded: the account starts anew, the others lose what it was counted."""
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                await connection.execute(_FORGET, account.digest)
                for subject in others:
                    await connection.execute(_FORGIVE, subject.digest)

    async def undone(self, *subjects: Subject) -> None:
        """The attempt was not decided, for reasons that are ours."""
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                for subject in subjects:
                    await connection.execute(_FORGIVE, subject.digest)

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of what counts no more; returns how many rows that were."""
        status = await execute(self._pool, _FORGET_OLD, self._settings.throttle_forget_s, batch)
        return int(status.rpartition(" ")[2])


def _subject(kind: str, name: str, free_attempts: int) -> Subject:
    return Subject(hashlib.sha256(f"{kind}\0{name}".encode()).digest(), free_attempts)


def _wait(left_s: float | None) -> ResourceExhausted:
    seconds = max(1, math.ceil(left_s or 0))
    return ResourceExhausted(
        f"Too many attempts; try again in {seconds} s.",
        reason="LOGIN_THROTTLED",
        retry_after_s=float(seconds),
    )
