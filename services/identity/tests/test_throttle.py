"""Guessing is slowed down by all replicas together; success, others and cancelled calls are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
from identity_harness import PASSWORD, REST, Caller, Starter, coming_from, refused, sql

from bos.identity.v1 import ChangePasswordRequest
from bos_chassis.settings import AuthSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import (
    BosError,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
)
from bos_identity.metrics import IdentityMetrics
from bos_identity.passwords.attempts import Attempts
from bos_identity.passwords.throttle import Subject, Throttle
from bos_identity.service import SCHEMA
from bos_identity.settings import IdentitySettings
from bos_postgres import open_database
from bos_testkit.address_tokens import AddressTokens

SLOW = {"throttle_first_s": 100.0, "throttle_max_s": 300.0}
HOME, AWAY = "203.0.113.1", "198.51.100.1"
OUTCOMES = {"LOGIN_FAILED": "wrong", "LOGIN_THROTTLED": "has to wait"}


async def log_in(identity: Caller, username: str, address: str, *, is_right: bool) -> str:
    """How an attempt ends, from an address or from this machine."""
    there = coming_from(address) if address else {}
    try:
        await identity.log_in(username, PASSWORD if is_right else "wrong", **there)
    except (Unauthenticated, ResourceExhausted) as error:
        return OUTCOMES[error.reason]
    return "signed in"


async def guess(identity: Caller, username: str = "ada", address: str = "") -> None:
    assert await log_in(identity, username, address, is_right=False) == "wrong"


async def blocked(identity: Caller) -> float:
    """How long the owner has to wait."""
    with pytest.raises(ResourceExhausted) as error:
        await identity.log_in()
    assert error.value.retry_after_s is not None
    return error.value.retry_after_s


def wrong(*names: str, address: str = "") -> list[tuple[str, str, str]]:
    return [(name, address, "wrong") for name in names]


def right(address: str = "", outcome: str = "signed in") -> list[tuple[str, str, str]]:
    return [("ada", address, outcome)]


WAITS = "has to wait"
SITE = "2001:db8:1:1::"
SCENARIOS: dict[str, tuple[dict[str, int], list[tuple[str, str, str]]]] = {
    "spellings of one account count together": (
        {"account_attempts": 3},
        [*wrong("ada", "ADA@example.com", "Ada"), *right(outcome=WAITS)],
    ),
    "success starts the account anew": (
        {"account_attempts": 3},
        [*wrong("ada", "ada"), *right()] * 3,
    ),
    "an address waits for all accounts": (
        {"address_attempts": 3},
        [*wrong("user0", "user1", "user2", address=AWAY), *right(AWAY, WAITS), *right(HOME)],
    ),
    "an account that waits costs the address nothing": (
        {"account_attempts": 2, "address_attempts": 4},
        [*wrong("ada", "ada"), *right(outcome=WAITS) * 3, *wrong("user1", "user2"),
         ("user3", "", WAITS)],
    ),
    "an address that waits costs the account nothing": (
        {"account_attempts": 2, "address_attempts": 2},
        [*wrong("user0", "user1", address=AWAY), *right(AWAY, WAITS) * 3,
         *wrong("ada", address=HOME), *right(HOME)],
    ),
    "success does not pay for guesses at others": (
        {"address_attempts": 4},
        [*wrong("user0"), *right(), *wrong("user1"), *right(), *wrong("user2"), *right(),
         *wrong("user3"), *right(outcome=WAITS)],
    ),
    "endless guessing does not lock out the owner": (
        {"account_attempts": 2, "account_attempts_anywhere": 4},
        [*right(HOME), *wrong("ada", address="198.51.100.2"), *wrong("ada", address="198.51.100.3"),
         *wrong("ada", address="198.51.100.4"), *wrong("ada", address="198.51.100.5"),
         *right(AWAY, WAITS), *right(HOME) * 3],
    ),
    "where the owner signed in guesses are slowed down too": (
        {"account_attempts": 2},
        [*right(HOME), *wrong("ada", "ada", address=HOME), *right(HOME, WAITS), *right(AWAY)],
    ),
    "an IPv6 site counts as one network": (
        {"account_attempts_anywhere": 1},
        [*right(f"{SITE}1"), *wrong("ada", address=AWAY), *right(f"{SITE}ffff"),
         *right("2001:db8:1:2::1", WAITS)],
    ),
}  # fmt: skip
"""Settings, and attempts with their outcomes: by user, address."""


@pytest.mark.parametrize("name", SCENARIOS)
async def test_attempts_are_throttled_by_account_and_address(start: Starter, name: str) -> None:
    settings, attempts = SCENARIOS[name]
    identity = await start(**SLOW, **settings)
    await identity.register()
    for number, (username, address, expected) in enumerate(attempts):
        ended = await log_in(identity, username, address, is_right=expected != "wrong")
        assert ended == expected, (number, username, address)


async def test_unknown_account_is_throttled_like_a_known_one(start: Starter) -> None:
    identity = await start(account_attempts=3, **SLOW)
    for _ in range(3):
        await guess(identity)
    assert 90 < await blocked(identity) <= 100
    assert identity.metric("bos_identity_logins_total", outcome="throttled") == 1


async def test_waits_double_up_to_a_limit(start: Starter, postgres_dsn: str) -> None:
    identity = await start(account_attempts=2, **SLOW)
    await identity.register()
    await guess(identity)
    waits = []
    for _ in range(4):
        await guess(identity)
        waits.append(round(await blocked(identity), -1))
        # The wait is over; the failures still count.
        await sql(postgres_dsn, "UPDATE login_throttle SET blocked_until = now()")
    assert waits == [100, 200, 300, 300]


async def test_an_account_as_a_whole_waits_for_less_long(start: Starter) -> None:
    identity = await start(account_attempts_anywhere=2, account_throttle_max_s=30.0, **SLOW)
    await identity.register()
    for number in range(2):
        await guess(identity, address=f"198.51.100.{number}")
    assert await blocked(identity) <= 30


async def test_throttling_is_shared_by_replicas_and_persistent(start: Starter) -> None:
    settings: dict[str, Any] = {"account_attempts": 2, **SLOW}
    first, second = await start(**settings), await start(**settings)
    await first.register()
    await guess(first)
    await guess(second)
    for replica in (first, second, await start(**settings)):
        assert await blocked(replica)


async def test_guesses_at_the_same_moment_count_one_by_one(start: Starter) -> None:
    settings: dict[str, Any] = {"account_attempts": 3, **SLOW}
    replicas = [await start(**settings), await start(**settings)]
    await replicas[0].register()
    ended = await asyncio.gather(
        *(log_in(replicas[n % 2], "ada", "", is_right=False) for n in range(20))
    )
    assert ended.count("wrong") == 3


async def test_failures_are_forgotten_after_a_while(start: Starter, postgres_dsn: str) -> None:
    identity = await start(account_attempts=2, throttle_forget_s=60.0, **SLOW)
    await identity.register()
    await guess(identity)
    late = "UPDATE login_throttle SET updated_at = updated_at - interval '61 seconds'"
    await sql(postgres_dsn, late)
    await guess(identity)
    assert await identity.log_in()


async def test_registrations_are_throttled(start: Starter, postgres_dsn: str) -> None:
    identity = await start(address_attempts=2, **SLOW)
    await identity.register("user1")
    # What is under way is forgotten soon; this is not.
    await sql(postgres_dsn, "UPDATE login_throttle SET under_way_until = now()")
    await identity.register("user2")
    with pytest.raises(BosError) as error:
        await identity.register("user3")
    assert error.value.reason == "LOGIN_THROTTLED"


async def test_a_session_does_not_allow_guessing_its_password(start: Starter) -> None:
    identity = await start(account_attempts=2, **SLOW)
    await identity.register()
    token = (await identity.log_in()).tokens.access_token
    request = ChangePasswordRequest(current_password="wrong", new_password="another one, longer")
    for _ in range(2):
        with pytest.raises(InvalidArgument):
            await identity.call("ChangePassword", request, token)
    with pytest.raises(ResourceExhausted):
        await identity.call("ChangePassword", request, token)
    assert await identity.log_in()


async def test_typed_names_are_stored_as_digests(start: Starter, postgres_dsn: str) -> None:
    await guess(await start(), "my secret password by mistake")
    digests = "SELECT array_agg(length(subject)) FROM login_throttle"
    assert await sql(postgres_dsn, digests) == [32] * 3


async def test_a_forged_header_does_not_hide_the_client_address(start: Starter) -> None:
    identity = await start(address_attempts=3, throttle_first_s=100.0)
    await identity.register()
    for number in range(3):
        await refused(identity.log_in(f"user{number}", x_forwarded_for=f"203.0.113.{number}"))
    with pytest.raises(ResourceExhausted):
        await identity.log_in(x_forwarded_for="203.0.113.9")
    assert await identity.log_in(**coming_from("203.0.113.9"))


async def test_an_unknown_proxy_gets_an_error_that_says_so(start: Starter) -> None:
    known, none = await start(), await start(auth=AuthSettings.load())
    await known.register()
    anonymous = {"bos_proxy_token": AddressTokens().token("203.0.113.7")}
    for identity in (known, none):
        with pytest.raises(PermissionDenied, match="BOS_AUTH_PROXY_PUBLIC_KEYS") as error:
            await identity.log_in(**anonymous)
        assert error.value.reason == "PROXY_UNKNOWN"
    late = {"bos_proxy_token": REST.token("203.0.113.7", iat=1, exp=61)}
    with pytest.raises(PermissionDenied):
        await known.log_in(**late)
    assert await known.log_in(**coming_from("203.0.113.7"))


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
