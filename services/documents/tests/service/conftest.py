from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from documents_harness import ADA_KEY, Caller, Starter, ada_auth

from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory


@pytest.fixture
async def start(
    postgres_dsn: str, tmp_path: Path, scripted_model: ScriptedModelFactory
) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn, tmp_path, scripted_model)


@pytest.fixture
async def documents(start: Starter) -> Caller:
    """Documents without a model and without authentication."""
    return await start()


@pytest.fixture
async def guarded(start: Starter) -> Caller:
    """Documents that ask who calls: ada has the key."""
    found = await start(auth=ada_auth())
    found.key = ADA_KEY
    return found
