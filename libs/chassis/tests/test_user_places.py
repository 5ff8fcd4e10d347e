"""Places that are counted by user."""

from contextlib import ExitStack

import pytest

from bos_chassis.concurrency.user_places import Full, UserPlaces


def test_a_user_has_no_more_places_than_one_may_have() -> None:
    places = UserPlaces(total=10, per_user=2)
    with ExitStack() as held:
        for _ in range(2):
            assert places.full_for("ada") is None
            held.enter_context(places.taken("ada"))
        assert places.full_for("ada") is Full.USER
        assert places.full_for("ada", bounded=False) is None
        assert places.full_for("grace") is None
    assert places.full_for("ada") is None


@pytest.mark.parametrize("per_user", [None, 5])
def test_no_user_gets_a_place_where_all_are_taken(per_user: int | None) -> None:
    places = UserPlaces(total=2, per_user=per_user)
    with places.taken("ada"), places.taken("grace"):
        assert places.open == 2
        assert places.full_for("mary") is Full.ALL
    assert places.open == 0


def test_a_place_is_given_back_by_who_fails_as_well() -> None:
    places = UserPlaces(total=1)
    with pytest.raises(ZeroDivisionError), places.taken("ada"):
        raise ZeroDivisionError
    assert places.full_for("ada") is None


def test_a_hundred_thousand_users_leave_nothing_behind() -> None:
    places = UserPlaces(total=1)
    with places.taken("first"):
        for number in range(100_000):
            assert places.full_for(f"u{number}") is Full.ALL
    assert not places._of_users
