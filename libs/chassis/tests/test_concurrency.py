import asyncio
from contextlib import ExitStack

import pytest
import structlog

from bos_chassis.concurrency.joining import Joined
from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_chassis.concurrency.tasks import running_task
from bos_chassis.concurrency.user_places import Full, UserPlaces
from bos_errors import Unavailable
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


async def test_work_begins_with_the_block_and_has_ended_behind_it() -> None:
    begun, ended = asyncio.Event(), False

    async def work() -> None:
        nonlocal ended
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # tidying up takes a moment, which is waited for
            ended = True

    async with running_task(work(), "work"):
        async with asyncio.timeout(60):
            await begun.wait()
        assert not ended
    assert ended


async def test_work_that_failed_says_so_when_the_block_is_left() -> None:
    failed = asyncio.Event()

    async def work() -> None:
        failed.set()
        raise ValueError("no")

    async def owner() -> None:
        async with running_task(work(), "work"), asyncio.timeout(60):
            await failed.wait()
            await asyncio.sleep(0)

    with pytest.raises(ValueError, match="no"):
        await owner()


async def test_failed_periodic_task_is_logged_and_runs_again() -> None:
    runs, waits, ended = 0, asyncio.Event(), asyncio.Event()

    async def fails() -> None:
        nonlocal runs
        runs += 1
        raise (Unavailable("away") if runs == 1 else ValueError("no"))

    async def lasts() -> None:
        waits.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with structlog.testing.capture_logs() as logs:
        tasks = {"failing": fails, "lasting": lasts}
        async with periodic_tasks(structlog.get_logger(), tasks, retry_s=0.0):
            await eventually(lambda: runs > 2 and waits.is_set())
    assert ended.is_set()
    assert [(each["log_level"], each["event"], each["task"]) for each in logs[:2]] == [
        ("warning", "periodic task failed", "failing"),
        ("error", "periodic task failed", "failing"),
    ]


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


def test_refused_users_leave_nothing_behind() -> None:
    places = UserPlaces(total=1)
    with places.taken("first"):
        for number in range(1_000):
            assert places.full_for(f"u{number}") is Full.ALL
    assert not places._of_users
