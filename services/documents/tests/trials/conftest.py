from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from documents_trials.service import RealDocuments, real_documents

from bos_documents.service import migrate_store
from bos_testkit.postgres import migrated_template

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bos_testkit.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of documents, which the service finds up to date."""
    return migrated_template(postgres_server, "documents_trials_template", migrate_store)


@pytest.fixture
async def real(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[RealDocuments]:
    """The service with all that people use of it."""
    async with real_documents(postgres_dsn, tmp_path) as started:
        yield started
