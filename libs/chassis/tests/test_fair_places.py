import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait


class Callers:
    """Calls that hold their places until the test ends them."""

    def __init__(self, places: FairPlaces) -> None:
        self._places = places
        self.inside: list[str] = []
        self._leave: list[tuple[str, asyncio.Event]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, *callers: str) -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self._call(caller)) for caller in callers]
        self._tasks += tasks
        await self._settle()
        return tasks

    async def leave(self, caller: str) -> None:
        """The first of this caller's calls ends."""
        place = next(place for place, (name, _) in enumerate(self._leave) if name == caller)
        self._leave.pop(place)[1].set()
        await self._settle()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _call(self, caller: str) -> None:
        async with self._places.place(caller):
            may_leave = asyncio.Event()
            self._leave.append((caller, may_leave))
            self.inside.append(caller)
            try:
                await may_leave.wait()
            finally:
                self.inside.remove(caller)

    @staticmethod
    async def _settle() -> None:
        for _ in range(10):
            await asyncio.sleep(0)


async def callers_of(stack: AsyncExitStack, places: int) -> tuple[FairPlaces, Callers]:
    fair = FairPlaces(places)
    made = Callers(fair)
    stack.push_async_callback(made.end)
    return fair, made


@pytest.mark.parametrize(("places", "greedy"), [(1, 1), (2, 1), (4, 3), (8, 7)])
async def test_one_caller_leaves_a_place_to_the_next(places: int, greedy: int) -> None:
    async with AsyncExitStack() as stack:
        fair, people = await callers_of(stack, places)
        await people.come(*["greedy"] * 12)
        assert people.inside == ["greedy"] * greedy
        await people.come("other")
        assert ("other" in people.inside) == (places > 1)
        assert fair.held == places


async def test_callers_without_places_come_first() -> None:
    async with AsyncExitStack() as stack:
        _, people = await callers_of(stack, 3)
        await people.come(*["a"] * 5, "b", *["b"] * 5)
        assert sorted(people.inside) == ["a", "a", "b"]
        await people.come("c")
        await people.leave("a")
        assert sorted(people.inside) == ["a", "b", "c"]


async def test_with_one_place_callers_take_turns() -> None:
    async with AsyncExitStack() as stack:
        _, people = await callers_of(stack, 1)
        await people.come(*["a"] * 4, "b", "c")
        order = [people.inside[0]]
        for _ in range(5):
            await people.leave(order[-1])
            order += people.inside
    assert order[:4] == ["a", "b", "c", "a"]
    assert order == ["a", "b", "c", "a", "a", "a"]


async def test_cancelled_waiters_take_no_place() -> None:
    async with AsyncExitStack() as stack:
        fair, people = await callers_of(stack, 1)
        await people.come("a")
        (waiting,) = await people.come("b")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert fair.waiting == 0
        await people.come("c")
        await people.leave("a")
        assert people.inside == ["c"]

        # Given a place and cancelled before it could take it: the next one gets it.
        (late, _) = await people.come("d", "e")
        people._leave.pop(0)[1].set()
        for _ in range(5):
            if "d" not in fair._held:
                await asyncio.sleep(0)
        assert fair._held["d"] == 1
        late.cancel()
        await people.come()
        assert people.inside == ["e"]
    assert fair.held == fair.waiting == 0
    assert not fair._served, "nothing is kept about callers who are gone"


class Visit:
    """A call that the test ends; no turn of the loop passes in ``end`` and ``cancel``."""

    def __init__(self, fair: FairPlaces, caller: str) -> None:
        self._fair = fair
        self._caller = caller
        self._scope = AsyncExitStack()
        self.inside = False
        self.gone = False
        self.task = asyncio.create_task(self._enter())

    async def _enter(self) -> None:
        await self._scope.enter_async_context(self._fair.place(self._caller))
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


async def held_and_waiting(places: int, callers: str) -> tuple[FairPlaces, list[Visit]]:
    fair = FairPlaces(places)
    visits = [Visit(fair, caller) for caller in callers]
    await turns()
    return fair, visits


@pytest.mark.parametrize("cancelled_first", [True, False])
@pytest.mark.parametrize("caller", ["a", "b"])
async def test_cancelled_in_the_turn_in_which_another_gives_back(
    caller: str, cancelled_first: bool
) -> None:
    fair, (holder, waiter, next_one) = await held_and_waiting(1, f"a{caller}c")
    if cancelled_first:
        waiter.cancel()
        holder.end()
    else:
        holder.end()
        waiter.cancel()
    await turns()
    assert waiter.task.cancelled()
    assert next_one.inside
    next_one.end()
    assert (fair.held, fair.waiting) == (0, 0)
    assert not fair._served
    assert not fair._waiting


@pytest.mark.parametrize("cancelled_first", [True, False])
async def test_the_last_of_a_line_cancelled_leaves_the_place_free(cancelled_first: bool) -> None:
    fair, (holder, waiter) = await held_and_waiting(1, "ab")
    for step in (waiter.cancel, holder.end) if cancelled_first else (holder.end, waiter.cancel):
        step()
    await turns()
    assert waiter.task.cancelled()
    assert (fair.held, fair.waiting) == (0, 0)
    async with asyncio.timeout(5), fair.place("b"):
        assert fair.held == 1


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


async def test_a_line_has_an_end_for_each_caller() -> None:
    fair = FairPlaces(1, waiting_per_caller=1)
    async with fair.place("a"):
        waiting = asyncio.create_task(_visit(fair, "a"))
        await asyncio.sleep(0)
        with pytest.raises(NoPlaceToWait):
            await _visit(fair, "a")
        other = asyncio.create_task(_visit(fair, "b"))
        await asyncio.sleep(0)
    await asyncio.gather(waiting, other)
    assert (fair.held, fair.waiting) == (0, 0)


@pytest.mark.parametrize(("places", "waiting"), [(0, 1), (-1, 1), (1, -1)])
def test_impossible_numbers_are_refused(places: int, waiting: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        FairPlaces(places, waiting_per_caller=waiting)


async def _visit(fair: FairPlaces, caller: str) -> None:
    async with fair.place(caller):
        pass
