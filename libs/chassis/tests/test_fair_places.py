from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from bos_chassis.fair_places import FairPlaces, NoPlaceToWait


class Crowd:
    """Calls that hold their places until they are told to leave."""

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


async def crowd(stack: AsyncExitStack, places: int) -> tuple[FairPlaces, Crowd]:
    fair = FairPlaces(places)
    made = Crowd(fair)
    stack.push_async_callback(made.end)
    return fair, made


@pytest.mark.parametrize(("places", "greedy"), [(1, 1), (2, 1), (4, 3), (8, 7)])
async def test_one_caller_leaves_a_place_to_the_next(places: int, greedy: int) -> None:
    async with AsyncExitStack() as stack:
        fair, people = await crowd(stack, places)
        await people.come(*["greedy"] * 12)
        assert people.inside == ["greedy"] * greedy
        await people.come("other")
        assert ("other" in people.inside) == (places > 1)
        assert fair.held == places


async def test_whoever_has_nothing_comes_before_whoever_has_much() -> None:
    async with AsyncExitStack() as stack:
        _, people = await crowd(stack, 3)
        await people.come(*["a"] * 5, "b", *["b"] * 5)
        assert sorted(people.inside) == ["a", "a", "b"]
        await people.come("c")
        await people.leave("a")
        assert sorted(people.inside) == ["a", "b", "c"]


async def test_with_one_place_callers_take_turns() -> None:
    async with AsyncExitStack() as stack:
        _, people = await crowd(stack, 1)
        await people.come(*["a"] * 4, "b", "c")
        order = [people.inside[0]]
        for _ in range(5):
            await people.leave(order[-1])
            order += people.inside
    assert order[:4] == ["a", "b", "c", "a"]
    assert order == ["a", "b", "c", "a", "a", "a"]


async def test_whoever_gives_up_takes_no_place_and_keeps_none() -> None:
    async with AsyncExitStack() as stack:
        fair, people = await crowd(stack, 1)
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
