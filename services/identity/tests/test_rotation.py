from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from bos_identity.signing.rotation import KeyDates, RotationPolicy, due, signing_key

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
POLICY = RotationPolicy(life=30 * DAY, ahead=HOUR, after=timedelta(minutes=20))


def key(name: str, after_start: timedelta) -> KeyDates:
    return KeyDates(name, START + after_start)


def test_the_first_key_signs_at_once() -> None:
    assert due([], START, POLICY).new_key_from == START


def test_successor_key_is_published_ahead_of_use() -> None:
    first = key("first", timedelta(0))
    before = START + 30 * DAY - HOUR - timedelta(seconds=1)
    assert due([first], before, POLICY).new_key_from is None
    assert due([first], START + 30 * DAY - HOUR, POLICY).new_key_from == START + 30 * DAY


def test_successor_of_an_overdue_key_is_published_first() -> None:
    late = START + 90 * DAY
    assert due([key("first", timedelta(0))], late, POLICY).new_key_from == late + HOUR


def test_the_successor_signs_when_its_time_has_come() -> None:
    keys = [key("next", 30 * DAY), key("first", timedelta(0))]
    assert signing_key(keys, START + 30 * DAY - timedelta(seconds=1)).key_id == "first"
    assert signing_key(keys, START + 30 * DAY).key_id == "next"


def test_a_clock_behind_the_first_key_still_finds_one() -> None:
    assert signing_key([key("first", HOUR)], START).key_id == "first"


def test_key_is_removed_once_its_last_token_has_expired() -> None:
    keys = [key("first", timedelta(0)), key("next", 30 * DAY)]
    last_token = START + 30 * DAY + POLICY.after
    assert due(keys, last_token - timedelta(seconds=1), POLICY).dead == ()
    assert due(keys, last_token, POLICY).dead == ("first",)


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
