"""Signing keys: published before they sign, rotated, sealed in the store, shared by replicas."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.fernet import Fernet, MultiFernet
from hypothesis import given, settings
from hypothesis import strategies as st
from identity_harness import KEY, Caller, Starter, sql

from bos_chassis.auth.callers import generate_keypair
from bos_errors import ConfigurationError
from bos_identity.signing.key_ring import new_key_encryption_key
from bos_identity.signing.rotation import KeyDates, RotationPolicy, due, signing_key


async def key_ids(identity: Caller) -> list[str]:
    found = await identity.do("GetJsonWebKeySet")
    kinds = {(key.kty, key.crv, key.use, key.alg) for key in found.keys}
    assert kinds == {("OKP", "Ed25519", "sig", "EdDSA")}
    return [key.kid for key in found.keys]


async def signer(identity: Caller) -> str:
    token = (await identity.log_in()).tokens.access_token
    return str(jwt.get_unverified_header(token)["kid"])


async def test_replicas_agree_on_one_key(start: Starter) -> None:
    replicas = await asyncio.gather(*(start() for _ in range(3)))
    published = [await key_ids(replica) for replica in replicas]
    assert published == [published[0]] * 3
    assert len(published[0]) == 1
    await replicas[0].register()
    assert await replicas[1].me((await replicas[0].log_in()).tokens.access_token)


async def test_a_key_is_published_then_signs_then_disappears(
    start: Starter, postgres_dsn: str
) -> None:
    identity = await start(signing_key_refresh_s=0.02, signing_key_ahead_s=3600.0)
    await identity.register()
    (old,) = await key_ids(identity)
    token = (await identity.log_in()).tokens.access_token

    async def age(hours: float) -> None:
        await sql(
            postgres_dsn,
            "UPDATE signing_keys SET active_from = active_from - make_interval(secs => $1)",
            hours * 3600,
        )

    await age(30 * 24 - 0.5)  # half an hour before the end of its life
    await becomes(lambda: _has(identity, 2))
    assert await signer(identity) == old  # the new one waits for the caches of others
    await age(1.0)
    await becomes(lambda: _signs_with_another(identity, old))
    assert await identity.me(token)  # the old one still verifies
    await age(1.0)
    await becomes(lambda: _has(identity, 1))
    assert await key_ids(identity) != [old]


async def becomes(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask the service until the condition holds; each question takes a while by itself."""
    async with asyncio.timeout(60):
        while not await condition():
            pass


async def _has(identity: Caller, count: int) -> bool:
    return len(await key_ids(identity)) == count


async def _signs_with_another(identity: Caller, old: str) -> bool:
    return await signer(identity) != old


async def test_private_key_is_sealed_under_its_id(start: Starter, postgres_dsn: str) -> None:
    await start()
    sealed = await sql(postgres_dsn, "SELECT sealed_key FROM signing_keys")
    assert len(MultiFernet([Fernet(KEY)]).decrypt(sealed)) == 32
    assert Fernet(KEY).decrypt(sealed) not in sealed
    await sql(postgres_dsn, "UPDATE signing_keys SET key_id = 'another'")
    with pytest.raises(ConfigurationError, match="not what it says"):
        await start()


async def test_the_encrypting_key_can_be_replaced_and_not_lost(start: Starter) -> None:
    first = await start()
    newer = new_key_encryption_key()
    second = await start(key_encryption_keys=f"{newer},{KEY}")
    assert await key_ids(first) == await key_ids(second)
    with pytest.raises(ConfigurationError, match="BOS_IDENTITY_KEY_ENCRYPTION_KEYS"):
        await start(key_encryption_keys=newer)


@pytest.mark.parametrize("keys", [None, "", "not a key"])
async def test_without_a_way_to_keep_keys_it_does_not_start(
    start: Starter, keys: str | None
) -> None:
    with pytest.raises(ConfigurationError, match="BOS_IDENTITY_SIGNING_KEY_FILES"):
        await start(key_encryption_keys=keys)


async def test_keys_may_come_from_files(start: Starter, tmp_path: Path) -> None:
    files = [tmp_path / "one.pem", tmp_path / "two.pem"]
    for file in files:
        file.write_text(generate_keypair()[0])
    identity = await start(key_encryption_keys=None, signing_key_files=files)
    await identity.register()
    published = await key_ids(identity)
    assert len(published) == 2
    assert await signer(identity) == published[0]
    files[0].write_text("nothing")
    with pytest.raises(ConfigurationError, match=r"one\.pem"):
        await start(signing_key_files=files)


START = datetime(2026, 1, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
POLICY = RotationPolicy(life=30 * DAY, ahead=HOUR, after=timedelta(minutes=20))


def key(name: str, after_start: timedelta) -> KeyDates:
    return KeyDates(name, START + after_start)


SECOND = timedelta(seconds=1)
FIRST, NEXT = key("first", timedelta(0)), key("next", 30 * DAY)
LAST_TOKEN = START + 30 * DAY + POLICY.after


@pytest.mark.parametrize(
    ("keys", "now", "new_key_from", "dead"),
    [
        ([], START, START, ()),  # the first key signs at once
        # Its successor is published ahead of use, also where it comes late.
        ([FIRST], START + 30 * DAY - HOUR - SECOND, None, ()),
        ([FIRST], START + 30 * DAY - HOUR, START + 30 * DAY, ()),
        ([FIRST], START + 90 * DAY, START + 90 * DAY + HOUR, ()),
        # A key is removed once its last token has expired.
        ([FIRST, NEXT], LAST_TOKEN - SECOND, None, ()),
        ([FIRST, NEXT], LAST_TOKEN, None, ("first",)),
    ],
)
def test_keys_are_published_ahead_and_removed_after_their_last_token(
    keys: list[KeyDates], now: datetime, new_key_from: datetime | None, dead: tuple[str, ...]
) -> None:
    rotation = due(keys, now, POLICY)
    assert (rotation.new_key_from, rotation.dead) == (new_key_from, dead)


def test_the_successor_signs_when_its_time_has_come() -> None:
    assert signing_key([NEXT, FIRST], START + 30 * DAY - SECOND).key_id == "first"
    assert signing_key([NEXT, FIRST], START + 30 * DAY).key_id == "next"
    assert signing_key([NEXT], START).key_id == "next", "by a clock that is behind"


@settings(deadline=None)
@given(st.lists(st.integers(1, 40 * 24), min_size=1, max_size=60))
def test_every_token_can_be_verified_at_any_time_of_a_rotation(
    hours_between_looks: list[int],
) -> None:
    """Replicas look at odd times; the key that signs was always published an hour before."""
    now, keys = START, [key("k0", timedelta(0))]
    published = {"k0": START - HOUR}
    for number, hours in enumerate(hours_between_looks, 1):
        now += hours * HOUR
        rotation = due(keys, now, POLICY)
        keys = [each for each in keys if each.key_id not in rotation.dead]
        if rotation.new_key_from is not None:
            keys.append(KeyDates(f"k{number}", rotation.new_key_from))
            published[f"k{number}"] = now
        for moment in (now, now + HOUR):
            signer = signing_key(keys, moment)
            assert published[signer.key_id] <= moment - HOUR
        assert 1 <= len(keys) <= 3
