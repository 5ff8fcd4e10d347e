import pytest

from bos_documents.service import migrate_store
from bos_testkit.postgres import PostgresServer, migrated_template


@pytest.fixture(scope="session")
def postgres_template(postgres_server: PostgresServer) -> str:
    """The tables of documents, which the service finds up to date."""
    return migrated_template(postgres_server, "documents_template", migrate_store)
