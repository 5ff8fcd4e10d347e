"""Guessing is slowed down by all replicas together; success is not."""

import asyncio
from contextlib import suppress

import pytest
from identity_harness import PASSWORD, Caller, Starter, coming_from

from bos_errors import BosError, ResourceExhausted, Unauthenticated
from bos_postgres import connect


async def guess(identity: Caller, username: str = "ada", **metadata: str) -> None:
    with pytest.raises(Unauthenticated):
        await identity.log_in(username, "wrong", **metadata)


async def blocked(identity: Caller, username: str = "ada", **metadata: str) -> float:
    with pytest.raises(ResourceExhausted) as error:
        await identity.log_in(username, PASSWORD, **metadata)
    assert error.value.reason == "LOGIN_THROTTLED"
    assert error.value.retry_after_s is not None
    return error.value.retry_after_s


async def let_time_pass(dsn: str) -> None:
    """The waits are over; the failures still count."""
    async with connect(dsn, schema="identity") as connection:
        await connection.execute("UPDATE login_throttle SET blocked_until = now()")


async def test_account_throttling_holds_for_all_spellings(start: Starter) -> None:
    identity = await start(account_attempts=3, throttle_first_s=100.0)
    await identity.register()
    for name in ("ada", "ADA@example.com", "Ada"):
        await guess(identity, name)
    assert 90 < await blocked(identity) <= 100
    assert identity.metric("bos_identity_logins_total", outcome="throttled") == 1


async def test_unknown_account_is_throttled_like_a_known_one(start: Starter) -> None:
    identity = await start(account_attempts=3, throttle_first_s=100.0)
    for _ in range(3):
        await guess(identity, "unknown")
    assert 90 < await blocked(identity, "unknown") <= 100


async def test_waits_double_up_to_a_limit(start: Starter, postgres_dsn: str) -> None:
    identity = await start(account_attempts=2, throttle_first_s=100.0, throttle_max_s=300.0)
    await identity.register()
    await guess(identity)
    waits = []
    for _ in range(4):
        await guess(identity)
        waits.append(round(await blocked(identity), -1))
        await let_time_pass(postgres_dsn)
    assert waits == [100, 200, 300, 300]


async def test_throttling_is_shared_by_replicas_and_persistent(start: Starter) -> None:
    settings = {"account_attempts": 2, "throttle_first_s": 100.0}
    first, second = await start(**settings), await start(**settings)
    await first.register()
    await guess(first)
    await guess(second)
    assert await blocked(first)
    assert await blocked(second)
    assert await blocked(await start(**settings))


async def test_guesses_at_the_same_moment_count_one_by_one(start: Starter) -> None:
    settings = {"account_attempts": 3, "throttle_first_s": 100.0}
    replicas = [await start(**settings), await start(**settings)]
    await replicas[0].register()

    async def guessed(replica: Caller) -> bool:
        with suppress(ResourceExhausted):
            await guess(replica)
            return True
        return False

    looked_at = await asyncio.gather(*(guessed(replicas[n % 2]) for n in range(20)))
    assert sum(looked_at) == 3


async def test_success_starts_the_account_anew(start: Starter) -> None:
    identity = await start(account_attempts=3, throttle_first_s=100.0)
    await identity.register()
    for _ in range(3):
        await guess(identity)
        await guess(identity)
        assert await identity.log_in()


async def test_an_address_has_to_wait_whichever_accounts_it_tries(start: Starter) -> None:
    identity = await start(address_attempts=3, throttle_first_s=100.0)
    await identity.register()
    there = coming_from("203.0.113.7")
    for number in range(3):
        await guess(identity, f"user{number}", **there)
    assert 90 < await blocked(identity, **there) <= 100
    assert await identity.log_in(**coming_from("203.0.113.8"))


async def test_an_account_that_has_to_wait_costs_the_address_nothing(start: Starter) -> None:
    identity = await start(account_attempts=2, address_attempts=4, throttle_first_s=100.0)
    await identity.register()
    for _ in range(2):
        await guess(identity)
    for _ in range(3):
        assert await blocked(identity)
    await guess(identity, "user1")  # the address's third attempt, and not its sixth
    await guess(identity, "user2")
    assert await blocked(identity, "user3")


async def test_an_address_that_has_to_wait_costs_the_account_nothing(start: Starter) -> None:
    identity = await start(account_attempts=2, address_attempts=2, throttle_first_s=100.0)
    await identity.register()
    there = coming_from("203.0.113.7")
    for number in range(2):
        await guess(identity, f"user{number}", **there)
    for _ in range(3):
        assert await blocked(identity, **there)
    await guess(identity, **coming_from("203.0.113.8"))
    assert await identity.log_in(**coming_from("203.0.113.8"))


async def test_ones_own_success_does_not_pay_for_guesses_at_others(start: Starter) -> None:
    identity = await start(address_attempts=4, throttle_first_s=100.0)
    await identity.register()
    for number in range(3):
        await guess(identity, f"user{number}")
        assert await identity.log_in()
    await guess(identity, "user3")
    assert await blocked(identity)


async def test_failures_are_forgotten_after_a_while(start: Starter, postgres_dsn: str) -> None:
    identity = await start(account_attempts=2, throttle_first_s=100.0, throttle_forget_s=60.0)
    await identity.register()
    await guess(identity)
    async with connect(postgres_dsn, schema="identity") as connection:
        await connection.execute(
            "UPDATE login_throttle SET updated_at = updated_at - interval '61 seconds'"
        )
    await guess(identity)
    assert await identity.log_in()


async def test_registrations_are_throttled(start: Starter, postgres_dsn: str) -> None:
    identity = await start(address_attempts=2, throttle_first_s=100.0)
    await identity.register("user1")
    async with connect(postgres_dsn, schema="identity") as connection:
        # What is under way is forgotten soon; this is not.
        await connection.execute("UPDATE login_throttle SET under_way_until = now()")
    await identity.register("user2")
    with pytest.raises(BosError) as error:
        await identity.register("user3")
    assert error.value.reason == "LOGIN_THROTTLED"


async def test_typed_names_are_stored_as_digests(start: Starter, postgres_dsn: str) -> None:
    identity = await start()
    await guess(identity, "my secret password by mistake")
    async with connect(postgres_dsn, schema="identity") as connection:
        subjects = await connection.fetch("SELECT subject FROM login_throttle")
    assert len(subjects) == 3
    assert all(len(row["subject"]) == 32 for row in subjects)
