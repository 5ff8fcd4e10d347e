from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from memory_house import Caller, Starter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory


@pytest.fixture
async def start(postgres_dsn: str, scripted_model: ScriptedModelFactory) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn, scripted_model)


@pytest.fixture
async def memory(start: Starter) -> Caller:
    """Memory without a model."""
    return await start(model=False)
