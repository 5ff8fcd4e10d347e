"""Throttling of password guesses, over all replicas and across restarts.

An attempt is counted as failed before the password is looked at, so that a hundred at once are a
hundred failures and not one. Success, or an end that decided nothing, takes the count back; of an
attempt that died with its process the count goes by itself. Beyond the free attempts each failure
doubles the wait. While a subject has to wait its attempts are refused and not counted: waiting is
the price, and a client that keeps trying does not lock itself out for longer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from bos_errors import ResourceExhausted
from bos_identity.settings import IdentitySettings
from bos_postgres import acquire, execute, statement_errors

THROTTLED = "LOGIN_THROTTLED"
"""The reason that those hear who have to wait."""
# So long an attempt may be under way; the outcome of an older one is unknown.
_UNDER_WAY_S = 60.0

_FAILED = (
    "CASE WHEN t.updated_at < clock_timestamp() - make_interval(secs => $5) THEN 0"
    " ELSE t.failures END"
)
_OPEN = "CASE WHEN t.under_way_until < clock_timestamp() THEN 0 ELSE t.under_way END"
_COUNTED = f"({_FAILED}) + ({_OPEN}) + 1"
# Counts the attempt, unless the subject has to wait: then it changes and returns nothing. By the
# clock, as the transaction may have begun before one that it had to wait for.
_COUNT = f"""
INSERT INTO login_throttle AS t
    (subject, failures, under_way, under_way_until, blocked_until, updated_at)
VALUES ($1, 0, 1, clock_timestamp() + make_interval(secs => $6),
        clock_timestamp() + make_interval(secs => CASE WHEN $2 > 1 THEN 0 ELSE $3 END),
        clock_timestamp())
ON CONFLICT (subject) DO UPDATE SET
    failures = {_FAILED},
    under_way = ({_OPEN}) + 1,
    under_way_until = clock_timestamp() + make_interval(secs => $6),
    blocked_until = clock_timestamp() + make_interval(secs => CASE
        WHEN {_COUNTED} < $2 THEN 0
        ELSE least($4, $3 * power(2, least({_COUNTED} - $2, 30))) END),
    updated_at = clock_timestamp()
WHERE t.blocked_until <= clock_timestamp()
RETURNING failures
"""  # noqa: S608  Our own expressions.
_LEFT = """
SELECT extract(epoch FROM blocked_until - clock_timestamp())::float8
FROM login_throttle WHERE subject = $1
"""
_FAIL = """
UPDATE login_throttle SET under_way = greatest(0, under_way - 1), failures = failures + 1
WHERE subject = $1
"""
_TAKE_BACK = """
UPDATE login_throttle SET under_way = greatest(0, under_way - 1), blocked_until = now()
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
    """Account and network of an attempt, and how many are free to them."""

    digest: bytes
    free_attempts: int
    longest_wait_s: float
    starts_anew: bool = False
    """Whether one success makes up for all failures; if not, for nothing but itself."""


class Throttle:
    """Attempts to sign in, in the store.

    Args:
        pool: Connections whose search path is the service's schema.
        settings: How many attempts are free, and the waits.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], settings: IdentitySettings) -> None:
        self._pool = pool
        self._settings = settings

    def log_in(self, account: str, network: str, *, is_known: bool) -> list[Subject]:
        """Who is slowed down at a sign-in.

        The network for all that it tries, and the account for what comes from this network. The
        account as a whole, counted over all networks, is free to ten times as many and waits for
        less long; where its owner has signed in before, not at all.

        Args:
            account: What people sign in to, whether it exists or not.
            network: Where they sign in from; empty if unknown.
            is_known: Whether the account was signed in to from there before.
        """
        settings, subjects = self._settings, []
        if network:
            subjects.append(self._subject("address", network, settings.address_attempts))
            pair = f"{account.lower()}\0{network}"
            subjects.append(self._subject("pair", pair, settings.account_attempts, own=True))
        if not (network and is_known):
            subjects.append(self.account(account))
        return subjects

    def account(self, account: str) -> Subject:
        """The account as a whole, wherever attempts come from."""
        settings = self._settings
        return Subject(
            _digest("account", account.lower()),
            settings.account_attempts_anywhere,
            min(settings.account_throttle_max_s, settings.throttle_max_s),
        )

    def change(self, account: str) -> list[Subject]:
        """Who is slowed down when a signed-in person proves to know the password."""
        return [self._subject("change", account, self._settings.account_attempts, own=True)]

    def registration(self, network: str) -> list[Subject]:
        """Who is slowed down when an account is made; no caller if the network is not known."""
        if not network:
            return []
        return [self._subject("registration", network, self._settings.address_attempts)]

    async def begin(self, subjects: Sequence[Subject]) -> None:
        """Count an attempt by all of them as failed, or by none if one has to wait.

        Raises:
            ResourceExhausted: One of them has to wait; says how long.
        """
        if not subjects:
            return
        async with acquire(self._pool) as connection:
            # All or nothing: an attempt that is refused for one of them must cost none of them.
            with statement_errors(connection):
                async with connection.transaction():
                    # In one order everywhere, so that no two attempts wait for each other.
                    for subject in sorted(subjects, key=lambda subject: subject.digest):
                        await self._count(connection, subject)

    async def count(self, subjects: Sequence[Subject]) -> None:
        """Count an attempt without an outcome, because it counts in any case.

        Raises:
            ResourceExhausted: One of them has to wait; says how long.
        """
        await self.begin(subjects)
        await self.failed(subjects)

    async def _count(
        self, connection: PoolConnectionProxy[asyncpg.Record], subject: Subject
    ) -> None:
        counted = await connection.fetchval(
            _COUNT,
            subject.digest,
            subject.free_attempts,
            self._settings.throttle_first_s,
            subject.longest_wait_s,
            self._settings.throttle_forget_s,
            _UNDER_WAY_S,
        )
        if counted is None:
            raise _wait(await connection.fetchval(_LEFT, subject.digest))

    async def failed(self, subjects: Sequence[Subject]) -> None:
        """The attempt failed: what it was counted as stays."""
        await self._each((_FAIL, subject) for subject in subjects)

    async def succeeded(self, subjects: Sequence[Subject]) -> None:
        """The attempt succeeded: some start anew, the others lose what it was counted."""
        await self._each(
            (_FORGET if subject.starts_anew else _TAKE_BACK, subject) for subject in subjects
        )

    async def undone(self, subjects: Sequence[Subject]) -> None:
        """The attempt was not decided: the caller went away, or the reasons are ours."""
        await self._each((_TAKE_BACK, subject) for subject in subjects)

    async def forget(self, subject: Subject) -> None:
        """The subject starts anew."""
        await self._each([(_FORGET, subject)])

    async def _each(self, statements: Iterable[tuple[str, Subject]]) -> None:
        # One by one and not in a transaction, so that no two of them wait for each other.
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                for statement, subject in statements:
                    await connection.execute(statement, subject.digest)

    async def forget_old(self, batch: int) -> int:
        """Delete a batch of what counts no more; returns how many rows that were."""
        status = await execute(self._pool, _FORGET_OLD, self._settings.throttle_forget_s, batch)
        return int(status.rpartition(" ")[2])

    def _subject(self, kind: str, name: str, free_attempts: int, *, own: bool = False) -> Subject:
        return Subject(_digest(kind, name), free_attempts, self._settings.throttle_max_s, own)


def _digest(kind: str, name: str) -> bytes:
    return hashlib.sha256(f"{kind}\0{name}".encode()).digest()


def _wait(left_s: float | None) -> ResourceExhausted:
    seconds = max(1, math.ceil(left_s or 0))
    return ResourceExhausted(
        f"Too many attempts; try again in {seconds} s.",
        reason=THROTTLED,
        retry_after_s=float(seconds),
    )
