from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from identity_house import Caller, Starter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def start(postgres_dsn: str) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn)


@pytest.fixture
async def identity(start: Starter) -> Caller:
    return await start()
