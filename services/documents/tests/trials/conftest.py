from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from documents_trials.service import RealDocuments, real_documents


@pytest.fixture
async def real(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[RealDocuments]:
    """The service with all that people use of it."""
    async with real_documents(postgres_dsn, tmp_path) as started:
        yield started
