"""Background work ends with the block that owns it."""

from __future__ import annotations

import asyncio

import pytest

from bos_chassis.concurrency.tasks import running_task


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
