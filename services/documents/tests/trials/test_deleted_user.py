"""Deleting a user or a document leaves nothing to find: no row, no vector, no file."""

from pathlib import Path

import grpc
import pytest
from documents_trials.service import RealDocuments, real_documents
from token_issuer import ISSUER, Issuer, key_file

from bos.account.v1 import AccountDataServiceStub, EraseAccountDataRequest
from bos_chassis.auth.account_data import ERASE
from bos_documents.service import SCHEMA

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

DELETED, KEPT = "ada", "eve"
DOCUMENTS = 21
"""More than one request of identity erases."""


def planted(user: str) -> bytes:
    """What all documents of a user hold, and nothing else does."""
    return f"zebrafish-of-{user}-4711".encode()


def pond(number: int) -> bytes:
    """What one document of each user holds."""
    return f"pond-{number:03}-north".encode()


async def rows_holding(service: RealDocuments, text: str) -> dict[str, int]:
    """Rows by table in which a text stands anywhere; of all tables of the service."""
    tables = await service.rows(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = $1", SCHEMA
    )
    found = {
        table: await service.value(
            f"SELECT count(*) FROM {table} AS t WHERE to_jsonb(t)::text LIKE $1",
            f"%{text}%",
        )
        for (table,) in tables
    }
    return {table: count for table, count in found.items() if count}


async def erase(service: RealDocuments, token: str) -> None:
    """As identity does it: until the service says that it is done."""
    async with grpc.aio.insecure_channel(service.address) as channel:
        stub = AccountDataServiceStub(channel)
        for _ in range(DOCUMENTS):
            answer = await stub.EraseAccountData(
                EraseAccountDataRequest(),
                metadata=(("authorization", f"Bearer {token}"),),
                timeout=120,
            )
            if answer.done:
                return
    raise AssertionError("the service goes on erasing")


async def test_deletion_of_a_user_leaves_no_row_no_vector_and_no_file(
    postgres_dsn: str, tmp_path: Path
) -> None:
    issuer = Issuer()
    keys = {
        "BOS_AUTH_ISSUER": ISSUER,
        "BOS_AUTH_JWKS_FILE": str(key_file(tmp_path, issuer.jwk)),
    }
    home = tmp_path / "service"
    home.mkdir()
    async with real_documents(postgres_dsn, home, more=keys) as service:
        vectors: dict[str, set[Path]] = {}
        for user in (KEPT, DELETED):
            service.key = issuer.token(sub=user, exp=2**40)
            before = set(service.stored())
            for number in range(DOCUMENTS):
                text = planted(user) + b" grows in " + pond(number) + b"."
                await service.ready(text, f"{planted(user).decode()}-{number}.txt")
            index = home / "index"
            vectors[user] = {
                path for path in set(service.stored()) - before if index in path.parents
            }
            assert vectors[user]
        assert len(service.holding(planted(DELETED))) == DOCUMENTS
        assert await rows_holding(service, planted(DELETED).decode())

        await erase(service, issuer.token(sub=DELETED, exp=2**40, account_data=ERASE))

        assert service.holding(planted(DELETED)) == []
        assert await rows_holding(service, planted(DELETED).decode()) == {}
        assert not {path for path in vectors[DELETED] if path.exists()}
        assert await service.documents() == []
        # The trail of who did what keeps the bare id.
        assert set(await rows_holding(service, f'"{DELETED}"')) <= {"audit_trail"}

        service.key = issuer.token(sub=KEPT, exp=2**40)
        assert len(await service.documents()) == DOCUMENTS
        assert len((await service.search("zebrafish in a pond")).passages) == 20
        assert len(service.holding(planted(KEPT))) == DOCUMENTS

        (document,) = (await service.search(pond(7).decode(), limit=1)).passages
        assert pond(7).decode() in document.chunk.text
        await service.delete(document.chunk.document_id)
        assert service.holding(pond(7)) == []
        assert await rows_holding(service, pond(7).decode()) == {}
        assert len(service.holding(pond(8))) == 1
