from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bos_documents.service import migrate_store
from bos_testkit.postgres import migrated_template

if TYPE_CHECKING:
    from bos_testkit.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of documents, which the service finds up to date."""
    return migrated_template(postgres_server, "documents_template", migrate_store)
