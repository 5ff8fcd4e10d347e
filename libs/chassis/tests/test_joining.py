"""Equal questions at the same time have one answer."""

import asyncio

import pytest

from bos_chassis.concurrency.joining import Joined
from bos_testkit.waiting import eventually


class Asked:
    """A question that is answered when the test says so."""

    def __init__(self) -> None:
        self.times = 0
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> int:
        self.times += 1
        return await asyncio.shield(self.answer)


async def test_equal_questions_are_joined_while_one_is_under_way() -> None:
    joined, asked, other = Joined[int](), Asked(), Asked()
    tasks = [asyncio.create_task(joined.ask(b"a", asked)) for _ in range(20)]
    apart = asyncio.create_task(joined.ask(b"b", other))
    await eventually(lambda: asked.times == other.times == 1)
    asked.answer.set_result(7)
    other.answer.set_result(8)
    assert await asyncio.gather(*tasks) == [7] * 20
    assert await apart == 8
    assert await joined.ask(b"a", asked) == 7
    assert asked.times == 2


async def test_what_it_raises_reaches_all_who_asked() -> None:
    joined, asked = Joined[int](), Asked()
    tasks = [asyncio.create_task(joined.ask(b"a", asked)) for _ in range(3)]
    await eventually(lambda: asked.times == 1)
    asked.answer.set_exception(OSError("away"))
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [OSError] * 3


async def test_cancelled_caller_does_not_cancel_a_shared_call() -> None:
    joined, asked = Joined[int](), Asked()
    first, second, third = (asyncio.create_task(joined.ask(b"a", asked)) for _ in range(3))
    await eventually(lambda: asked.times == 1)
    third.cancel()
    first.cancel()
    await eventually(lambda: asked.times == 2)
    asked.answer.set_result(7)
    assert await second == 7
    for left in (first, third):
        with pytest.raises(asyncio.CancelledError):
            await left
