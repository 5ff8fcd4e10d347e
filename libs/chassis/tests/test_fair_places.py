import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait


class Visit:
    """A call that the test ends; no turn of the loop passes in ``end`` and ``cancel``."""

    def __init__(self, fair: FairPlaces, caller: str) -> None:
        self._fair = fair
        self.caller = caller
        self._scope = AsyncExitStack()
        self.inside = False
        self.gone = False
        self.task = asyncio.create_task(self._enter())

    async def _enter(self) -> None:
        await self._scope.enter_async_context(self._fair.place(self.caller))
        self.inside = True

    def end(self) -> None:
        """Give the place back now, in this very turn of the loop."""
        if self.inside and not self.gone:
            self.gone = True
            leaving = self._scope.aclose()
            with pytest.raises(StopIteration):
                leaving.send(None)

    def cancel(self) -> None:
        self.task.cancel()


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def arrive(fair: FairPlaces, callers: str) -> list[Visit]:
    visits = [Visit(fair, caller) for caller in callers]
    await turns()
    return visits


async def held_and_waiting(places: int, callers: str) -> tuple[FairPlaces, list[Visit]]:
    fair = FairPlaces(places)
    return fair, await arrive(fair, callers)


def inside(visits: list[Visit]) -> str:
    return "".join(sorted(each.caller for each in visits if each.inside and not each.gone))


async def leave(visits: list[Visit], caller: str) -> None:
    """End the first call of this caller that holds a place."""
    next(each for each in visits if each.caller == caller and each.inside and not each.gone).end()
    await turns()


@pytest.mark.parametrize(("places", "greedy"), [(1, 1), (2, 1), (8, 7)])
async def test_one_caller_leaves_a_place_to_the_next(places: int, greedy: int) -> None:
    fair, visits = await held_and_waiting(places, "g" * 12)
    assert inside(visits) == "g" * greedy
    visits += await arrive(fair, "o")
    assert ("o" in inside(visits)) == (places > 1)
    assert fair.held == places


async def test_callers_without_places_come_first() -> None:
    fair, visits = await held_and_waiting(3, "aaaaabbbbbb")
    assert inside(visits) == "aab"
    visits += await arrive(fair, "c")
    await leave(visits, "a")
    assert inside(visits) == "abc"


async def test_with_one_place_callers_take_turns() -> None:
    _, visits = await held_and_waiting(1, "aaaabc")
    order = inside(visits)
    for _ in range(5):
        await leave(visits, order[-1])
        order += inside(visits)
    assert order == "abcaaa"


async def test_waiting_calls_of_one_caller_are_limited() -> None:
    fair = FairPlaces(1, waiting_per_caller=1)
    visits = await arrive(fair, "aaab")
    assert [each.task.done() for each in visits] == [True, False, True, False]
    with pytest.raises(NoPlaceToWait):
        await visits[2].task
    await leave(visits, "a")
    await leave(visits, "b")
    await leave(visits, "a")
    assert (fair.held, fair.waiting) == (0, 0)


@pytest.mark.parametrize("cancelled_first", [True, False])
@pytest.mark.parametrize("caller", ["a", "b"])
async def test_cancelled_in_the_turn_in_which_another_gives_back(
    caller: str, cancelled_first: bool
) -> None:
    fair, (holder, waiter, next_one) = await held_and_waiting(1, f"a{caller}c")
    for step in (waiter.cancel, holder.end) if cancelled_first else (holder.end, waiter.cancel):
        step()
    await turns()
    assert waiter.task.cancelled()
    assert next_one.inside
    next_one.end()
    assert (fair.held, fair.waiting) == (0, 0)
    assert not fair._served
    assert not fair._waiting


async def test_a_call_does_not_stand_behind_a_cancelled_one() -> None:
    fair, (holder, waiter) = await held_and_waiting(1, "ab")
    # A call that was queued after the last place was released would never be served.
    coming = Visit(fair, "b")
    waiter.cancel()
    holder.end()
    assert fair.waiting == 0
    await turns()
    assert coming.inside
    coming.end()
    assert (fair.held, fair.waiting) == (0, 0)


async def test_cancelled_calls_take_up_no_room_in_line() -> None:
    fair = FairPlaces(1, waiting_per_caller=1)
    holder, waiter = Visit(fair, "a"), Visit(fair, "b")
    await turns()
    coming = Visit(fair, "b")
    waiter.cancel()
    await turns()
    assert fair.waiting == 1
    holder.end()
    await turns()
    assert coming.inside


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from("abc").map(ord)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 9)),
    ),
    min_size=20,
    max_size=60,
)


@pytest.mark.thorough
@settings(max_examples=300, deadline=None)
@given(places=st.integers(1, 4), steps=_STEPS)
def test_no_place_is_lost_in_any_order_of_events(places: int, steps: list[tuple[str, int]]) -> None:
    asyncio.run(_events_in_order(places, steps))


def _one(number: int, visits: list[Visit], step: Callable[[Visit], None]) -> None:
    if visits:
        step(visits[number % len(visits)])


async def _events_in_order(places: int, steps: list[tuple[str, int]]) -> None:
    fair = FairPlaces(places)
    visits: list[Visit] = []
    for step, number in steps:
        if step == "come":
            visits.append(Visit(fair, chr(number)))
        elif step == "turn":
            await turns(number)
        elif step == "end":
            _one(number, [each for each in visits if each.inside and not each.gone], Visit.end)
        else:
            _one(number, [each for each in visits if not each.task.done()], Visit.cancel)
        assert fair.held <= places
    for _ in range(len(visits) + 1):
        await turns()
        for visit in visits:
            visit.end()
    assert [visit for visit in visits if not visit.task.done()] == [], "a caller waits without end"
    for visit in visits:
        assert visit.task.cancelled() or visit.gone
        assert visit.task.cancelled() or visit.task.exception() is None
    assert (fair.held, fair.waiting) == (0, 0)
    assert not fair._waiting
    assert not fair._served


@pytest.mark.parametrize(("places", "waiting"), [(0, 1), (-1, 1), (1, -1)])
def test_impossible_numbers_are_refused(places: int, waiting: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        FairPlaces(places, waiting_per_caller=waiting)
