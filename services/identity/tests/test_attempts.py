"""Attempts at passwords are counted once they are decided, and not if their call was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
from identity_harness import Starter

from bos_chassis.telemetry import Telemetry
from bos_errors import ResourceExhausted
from bos_identity.metrics import IdentityMetrics
from bos_identity.passwords.attempts import Attempts
from bos_identity.passwords.throttle import Subject, Throttle
from bos_identity.service import SCHEMA
from bos_identity.settings import IdentitySettings
from bos_postgres import open_database


@pytest.fixture
async def pool(start: Starter) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    await start()  # for the tables
    async with open_database(start.dsn, schema=SCHEMA) as opened:
        yield opened


def settings(**more: Any) -> IdentitySettings:
    return IdentitySettings.load(store_url="postgresql://unused", **more)


async def failures(pool: asyncpg.Pool[asyncpg.Record]) -> list[tuple[int, int]]:
    rows = await pool.fetch("SELECT failures, under_way FROM login_throttle")
    return [(row["failures"], row["under_way"]) for row in rows]


class Passwords:
    """Passwords that are wrong once ``decided`` is set."""

    def __init__(self) -> None:
        self.begun, self.decided = asyncio.Event(), asyncio.Event()

    async def matches(self, stored: str | None, password: str) -> bool:
        self.begun.set()
        await self.decided.wait()
        return False


class Held(Throttle):
    """Stops behind counting an attempt, or before taking one back."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], at: str) -> None:
        super().__init__(pool, settings())
        self.at = at
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def begin(self, subjects: Sequence[Subject]) -> None:
        await super().begin(subjects)
        await self._stop("begin")

    async def undone(self, subjects: Sequence[Subject]) -> None:
        await self._stop("undone")
        await super().undone(subjects)

    async def _stop(self, where: str) -> None:
        if where == self.at:
            self.reached.set()
            await self.go_on.wait()


@pytest.mark.parametrize("at", ["begin", "outcome", "undone"])
async def test_cancelled_attempt_is_not_counted(
    pool: asyncpg.Pool[asyncpg.Record], at: str
) -> None:
    throttle, passwords = Held(pool, at), Passwords()
    metrics = IdentityMetrics(Telemetry.for_tests("identity").registry)
    attempts = Attempts(passwords, throttle, metrics)  # type: ignore[arg-type]
    subjects = throttle.log_in("ada", "203.0.113.1", is_known=False)
    task = asyncio.create_task(attempts.matches(None, "x", subjects))
    await (throttle.reached if at == "begin" else passwords.begun).wait()
    assert await failures(pool) == [(0, 1)] * 3
    task.cancel()
    if at == "undone":
        await throttle.reached.wait()
        task.cancel()
    await asyncio.sleep(0)
    throttle.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await failures(pool) == [(0, 0)] * 3
    passwords.decided.set()
    assert not await attempts.matches(None, "x", subjects)
    assert await failures(pool) == [(1, 0)] * 3


async def test_attempts_of_unknown_address_throttle_the_account_only(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    few = {"account_attempts_anywhere": 2, "address_attempts": 1, "account_attempts": 1}
    throttle = Throttle(pool, settings(throttle_first_s=100.0, **few))
    for name in ("ada", "bob", "carl"):
        await throttle.begin(throttle.log_in(name, "", is_known=False))
    await throttle.begin(throttle.log_in("ada", "", is_known=True))
    with pytest.raises(ResourceExhausted):
        await throttle.begin(throttle.log_in("ada", "", is_known=False))
    for _ in range(3):
        await throttle.begin(throttle.registration(""))


async def test_an_attempt_whose_process_died_stops_counting(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    throttle = Throttle(pool, settings(account_attempts=2))
    for _ in range(3):  # without a report of the outcome
        await throttle.begin(throttle.change("ada"))
        await pool.execute("UPDATE login_throttle SET blocked_until = now()")
    assert 3 in {under_way for _, under_way in await failures(pool)}
    await pool.execute("UPDATE login_throttle SET under_way_until = now()")
    await throttle.begin(throttle.change("ada"))
    assert (0, 1) in await failures(pool)
