"""Throttling slows down attackers, but neither the owner of the account nor other users."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import asyncpg
import pytest
from identity_harness import PASSWORD, Caller, Starter, coming_from, until

from bos.identity.v1 import ChangePasswordRequest, LogInRequest
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, InvalidArgument, ResourceExhausted, Unauthenticated
from bos_identity.metrics import IdentityMetrics
from bos_identity.passwords.attempts import Attempts
from bos_identity.passwords.throttle import Subject, Throttle
from bos_identity.service import SCHEMA
from bos_identity.settings import IdentitySettings
from bos_postgres import connect, open_database

SLOW = {"throttle_first_s": 100.0, "throttle_max_s": 300.0}


def home() -> dict[str, str]:
    """Where the owner is, as of now: what REST signs is good for a minute."""
    return coming_from("203.0.113.1")


def away() -> dict[str, str]:
    return coming_from("198.51.100.1")


async def guess(identity: Caller, username: str = "ada", **metadata: str) -> str:
    with pytest.raises((Unauthenticated, ResourceExhausted)) as error:
        await identity.log_in(username, "wrong", **metadata)
    assert isinstance(error.value, BosError)
    return error.value.reason


async def test_endless_guessing_does_not_lock_out_the_owner(start: Starter) -> None:
    identity = await start(account_attempts=2, account_attempts_anywhere=4, **SLOW)
    await identity.register()
    await identity.log_in(**home())
    for number in range(6):
        await guess(identity, **coming_from(f"198.51.100.{number}"))
    # The account as a whole has to wait: wherever it was never signed in to from.
    assert await guess(identity, **away()) == "LOGIN_THROTTLED"
    for _ in range(3):
        assert await identity.log_in(**home())


async def test_where_the_owner_signed_in_guesses_are_slowed_down_too(start: Starter) -> None:
    identity = await start(account_attempts=2, **SLOW)
    await identity.register()
    await identity.log_in(**home())
    for _ in range(2):
        assert await guess(identity, **home()) == "LOGIN_FAILED"
    assert await guess(identity, **home()) == "LOGIN_THROTTLED"
    assert await identity.log_in(**away())


async def test_an_ipv6_site_counts_as_one_network(start: Starter) -> None:
    identity = await start(account_attempts_anywhere=1, **SLOW)
    await identity.register()
    await identity.log_in(**coming_from("2001:db8:1:1::1"))
    assert await guess(identity, **away()) == "LOGIN_FAILED"
    assert await identity.log_in(**coming_from("2001:db8:1:1::ffff"))
    with pytest.raises(ResourceExhausted):
        await identity.log_in(**coming_from("2001:db8:1:2::1"))


async def test_an_account_as_a_whole_waits_for_less_long(start: Starter) -> None:
    identity = await start(account_attempts_anywhere=2, account_throttle_max_s=30.0, **SLOW)
    await identity.register()
    for number in range(2):
        await guess(identity, **coming_from(f"198.51.100.{number}"))
    with pytest.raises(ResourceExhausted) as error:
        await identity.log_in(**home())
    assert error.value.retry_after_s is not None
    assert error.value.retry_after_s <= 30


async def test_attempts_of_unknown_address_throttle_the_account_only(
    start: Starter, postgres_dsn: str
) -> None:
    settings = IdentitySettings.load(
        store_url=postgres_dsn,
        account_attempts_anywhere=2,
        address_attempts=1,
        account_attempts=1,
        throttle_first_s=100.0,
    )
    await start()  # for the tables
    async with open_database(postgres_dsn, schema=SCHEMA) as pool:
        throttle = Throttle(pool, settings)
        for name in ("ada", "bob", "carl"):
            await throttle.begin(throttle.log_in(name, "", is_known=False))
        await throttle.begin(throttle.log_in("ada", "", is_known=True))
        with pytest.raises(ResourceExhausted):
            await throttle.begin(throttle.log_in("ada", "", is_known=False))
        for _ in range(3):
            await throttle.begin(throttle.registration(""))


async def test_a_login_that_is_cut_off_costs_nothing(start: Starter, postgres_dsn: str) -> None:
    identity = await start(hash_threads=1, argon2_memory_kib=65536, argon2_time_cost=8)
    await identity.register()
    async with connect(postgres_dsn, schema="identity") as connection:

        async def under_way() -> int:
            query = "SELECT coalesce(sum(under_way), 0) FROM login_throttle"
            return int(await connection.fetchval(query))

        async def is_settled() -> bool:
            return await under_way() == 0

        await until(is_settled)
        for _ in range(3):
            request = LogInRequest(username="ada", password=PASSWORD)
            call = identity.begun("LogIn", request)
            waiting = asyncio.ensure_future(_end(call))

            async def has_begun(waiting: asyncio.Future[None] = waiting) -> bool:
                return await under_way() > 0 or waiting.done()

            await until(has_begun)
            call.cancel()
            await waiting
            await until(is_settled)
        query = "SELECT coalesce(sum(failures), 0) FROM login_throttle WHERE subject <> $1"
        made = Throttle.registration(
            Throttle(None, IdentitySettings.load(store_url=postgres_dsn)),  # type: ignore[arg-type]
            "127.0.0.1",
        )
        assert await connection.fetchval(query, made[0].digest) == 0


async def _end(call: Any) -> None:
    with suppress(asyncio.CancelledError):
        await call


class Endless:
    """Passwords that are never decided."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def matches(self, stored: str | None, password: str) -> bool:
        self.begun.set()
        await asyncio.Event().wait()
        return False


class Wrong:
    """Passwords that are never right."""

    async def matches(self, stored: str | None, password: str) -> bool:
        return False


async def _failures(pool: asyncpg.Pool[asyncpg.Record]) -> list[tuple[int, int]]:
    rows = await pool.fetch("SELECT failures, under_way FROM login_throttle")
    return [(row["failures"], row["under_way"]) for row in rows]


async def test_attempt_cancelled_before_its_outcome_is_not_counted(
    start: Starter, postgres_dsn: str
) -> None:
    await start()
    settings = IdentitySettings.load(store_url=postgres_dsn)
    metrics = IdentityMetrics(Telemetry.for_tests("identity").registry)
    async with open_database(postgres_dsn, schema=SCHEMA) as pool:
        throttle, passwords = Throttle(pool, settings), Endless()
        subjects = throttle.log_in("ada", "203.0.113.1", is_known=False)
        attempts = Attempts(passwords, throttle, metrics)  # type: ignore[arg-type]
        task = asyncio.create_task(attempts.matches(None, "x", subjects))
        await passwords.begun.wait()
        assert await _failures(pool) == [(0, 1)] * 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _failures(pool) == [(0, 0)] * 3
        decided = Attempts(Wrong(), throttle, metrics)  # type: ignore[arg-type]
        assert not await decided.matches(None, "x", subjects)
        assert await _failures(pool) == [(1, 0)] * 3


class Undoing(Throttle):
    """Takes its time to take an attempt back."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.undoing, self.may_undo = asyncio.Event(), asyncio.Event()

    async def undone(self, subjects: Sequence[Subject]) -> None:
        self.undoing.set()
        await self.may_undo.wait()
        await super().undone(subjects)


async def test_attempt_cancelled_twice_is_not_counted(start: Starter, postgres_dsn: str) -> None:
    await start()
    settings = IdentitySettings.load(store_url=postgres_dsn)
    metrics = IdentityMetrics(Telemetry.for_tests("identity").registry)
    async with open_database(postgres_dsn, schema=SCHEMA) as pool:
        throttle, passwords = Undoing(pool, settings), Endless()
        subjects = throttle.log_in("ada", "203.0.113.1", is_known=False)
        attempts = Attempts(passwords, throttle, metrics)  # type: ignore[arg-type]
        task = asyncio.create_task(attempts.matches(None, "x", subjects))
        await passwords.begun.wait()
        task.cancel()
        await throttle.undoing.wait()
        task.cancel()
        await asyncio.sleep(0)
        throttle.may_undo.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _failures(pool) == [(0, 0)] * 3


class Lingering(Throttle):
    """Has counted an attempt, and has not come back yet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counted, self.may_return = asyncio.Event(), asyncio.Event()

    async def begin(self, subjects: Sequence[Subject]) -> None:
        await super().begin(subjects)
        self.counted.set()
        await self.may_return.wait()


async def test_attempt_cancelled_while_counting_is_not_counted(
    start: Starter, postgres_dsn: str
) -> None:
    await start()
    settings = IdentitySettings.load(store_url=postgres_dsn)
    metrics = IdentityMetrics(Telemetry.for_tests("identity").registry)
    async with open_database(postgres_dsn, schema=SCHEMA) as pool:
        throttle = Lingering(pool, settings)
        attempts = Attempts(Wrong(), throttle, metrics)  # type: ignore[arg-type]
        subjects = throttle.log_in("ada", "203.0.113.1", is_known=False)
        task = asyncio.create_task(attempts.matches(None, "x", subjects))
        await throttle.counted.wait()
        task.cancel()
        await asyncio.sleep(0)
        throttle.may_return.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await _failures(pool) == [(0, 0)] * 3


async def test_an_attempt_whose_process_died_stops_counting(
    start: Starter, postgres_dsn: str
) -> None:
    identity = await start(account_attempts=2, throttle_first_s=100.0)
    await identity.register()
    settings = IdentitySettings.load(store_url=postgres_dsn, account_attempts=2)
    async with open_database(postgres_dsn, schema=SCHEMA) as pool:
        throttle = Throttle(pool, settings)
        for _ in range(3):  # without a report of the outcome
            await throttle.begin(throttle.change("ada"))
            await pool.execute("UPDATE login_throttle SET blocked_until = now()")
        assert (3) in {under_way for _, under_way in await _failures(pool)}
        await pool.execute("UPDATE login_throttle SET under_way_until = now()")
        await throttle.begin(throttle.change("ada"))
        assert (0, 1) in await _failures(pool)


async def test_a_session_does_not_allow_guessing_its_password(start: Starter) -> None:
    identity = await start(account_attempts=2, throttle_first_s=100.0)
    await identity.register()
    token = (await identity.log_in()).tokens.access_token
    request = ChangePasswordRequest(current_password="wrong", new_password="another one, longer")
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            await identity.call("ChangePassword", request, token)
    with pytest.raises(ResourceExhausted):
        await identity.call("ChangePassword", request, token)
    assert await identity.log_in()
