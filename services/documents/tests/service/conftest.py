from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from documents_harness import ADA_KEY, Caller, Starter, ada_auth

from bos_documents.service import migrate_store
from bos_testkit.postgres import migrated_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos_testkit.postgres import PostgresServer
    from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of documents, which the service finds up to date."""
    return migrated_template(postgres_server, "documents_template", migrate_store)


@pytest.fixture
async def start(
    postgres_dsn: str, tmp_path: Path, scripted_model: ScriptedModelFactory
) -> AsyncIterator[Starter]:
    async with AsyncExitStack() as stack:
        yield Starter(stack, postgres_dsn, tmp_path, scripted_model)


@pytest.fixture
async def documents(start: Starter) -> Caller:
    """Documents without a model, whose callers nobody asks who they are."""
    return await start()


@pytest.fixture
async def guarded(start: Starter) -> Caller:
    """Documents that ask who calls: ada has the key."""
    found = await start(auth=ada_auth())
    found.key = ADA_KEY
    return found
