import os
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import pytest_asyncio
from sandbox_client import Sandbox, open_sandbox

from bos.sandbox.v1 import Tier
from bos_chassis.settings import ServerSettings
from bos_sandbox.settings import SandboxSettings


@pytest.fixture
def settings() -> SandboxSettings:
    """Small limits, except of time: how soon a program reaches the others is the machine's.

    What is to end by its time asks for less of it.
    """
    return SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        timeout_s=60,
        kill_grace_s=0.25,
        queue_timeout_s=60,
        memory_bytes=32 * 1024 * 1024,
        warm_workers=1,
        max_workers=2,
        process_enabled=False,
    )


@pytest.fixture(scope="module")
def process_settings() -> SandboxSettings:
    """The same for the process tier, with no interpreter waiting."""
    return SandboxSettings.load(
        server=ServerSettings(reflection=False, grace_s=1),
        timeout_s=60,
        queue_timeout_s=60,
        memory_bytes=64 * 1024 * 1024,
        warm_workers=1,
        process_warm_workers=0,
        process_start_timeout_s=60,
        process_disk_bytes=4 * 1024 * 1024,
        process_max_files=200,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def isolated(process_settings: SandboxSettings) -> AsyncIterator[Sandbox]:
    """A sandbox whose process tier works, one for all tests of a module."""
    async with open_sandbox(process_settings, Tier.TIER_PROCESS) as opened:
        yield opened


@pytest.fixture
async def sandbox(settings: SandboxSettings) -> AsyncIterator[Sandbox]:
    async with open_sandbox(settings) as opened:
        yield opened


@pytest.fixture(scope="session")
def inmates() -> Callable[[], set[int]]:
    """Ids of the isolated interpreters, bubblewraps included, that this process started."""

    def find() -> set[int]:
        parents, found = {}, set()
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/cmdline") as words:
                    parents[pid] = int(stat.read().rpartition(")")[2].split()[1])
                    if "inside.worker" in words.read():
                        found.add(pid)
            except OSError:
                continue
        return {pid for pid in found if os.getpid() in _ancestors(pid, parents)}

    return find


def _ancestors(pid: int, parents: Mapping[int, int]) -> set[int]:
    above: set[int] = set()
    while (pid := parents.get(pid, 0)) and pid not in above:
        above.add(pid)
    return above
