from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from sandbox_client import Sandbox, descendants, open_sandbox

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
    return lambda: {pid for pid, words in descendants().items() if "inside.worker" in words}
