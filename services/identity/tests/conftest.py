from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from identity_house import Caller, Starter
from scripted_provider import ScriptedProvider, scripted_provider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def start(postgres_dsn: str) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn)


@pytest.fixture
async def identity(start: Starter) -> Caller:
    return await start()


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with scripted_provider() as running:
        yield running
