"""Background work ends with the block that owns it."""

import asyncio

import pytest
import structlog

from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_chassis.concurrency.tasks import running_task
from bos_errors import Unavailable
from bos_testkit.waiting import eventually


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


async def test_failed_periodic_task_is_logged_and_runs_again_beside_others() -> None:
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
