"""Deleting and exporting what documents hold of an account, when identity asks for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bos.account.v1 import (
    AccountDataServiceServicer,
    EraseAccountDataResponse,
    ExportAccountDataResponse,
)
from bos_chassis.auth.account_data import ERASE, EXPORT, PART_BYTES, account_to, parts
from bos_documents.files import DocumentKey
from bos_postgres import fetch, fetchval

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from bos.account.v1 import EraseAccountDataRequest, ExportAccountDataRequest
    from bos_documents.files import DocumentFiles, Spool
    from bos_documents.index.port import ChunkIndex
    from bos_documents.ingest.runner import Runner
    from bos_documents.store.documents import Documents

_BATCH: Final = 20
_LEFT = "SELECT count(*) FROM documents WHERE user_id = $1"
_EXPORTED = """
SELECT document_id, digest,
       (to_jsonb(d) - 'user_id' - 'digest' - 'version' - 'checked_at' - 'touched_at'
        - 'generation' - 'serving')::text AS content
FROM documents AS d
WHERE user_id = $1 AND state NOT IN ('storing', 'deleting')
      AND ($2::uuid IS NULL OR document_id > $2)
ORDER BY document_id LIMIT 50
"""


class AccountDataServicer(AccountDataServiceServicer):
    """Implements ``bos.account.v1.AccountDataService``.

    Args:
        pool: Connections of the service's own role.
        documents: The store.
        files: Stored files.
        spool: Where they are put to be exported.
        index: Their vectors.
        runner: Deletes documents.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        documents: Documents,
        files: DocumentFiles,
        spool: Spool,
        index: ChunkIndex,
        runner: Runner,
    ) -> None:
        self._pool = pool
        self._documents = documents
        self._files = files
        self._spool = spool
        self._index = index
        self._runner = runner

    async def EraseAccountData(
        self, request: EraseAccountDataRequest, context: Any
    ) -> EraseAccountDataResponse:
        """A batch of documents, out of sight at once; with the last ones the user's index."""
        user_id = account_to(ERASE)
        before = await fetchval(self._pool, _LEFT, user_id)
        for document_id in await self._documents.of_user(user_id, _BATCH):
            async with self._runner.paused(document_id):
                await self._documents.hide_for_good(document_id, user_id)
                await self._runner.run_now(document_id)
        left = await fetchval(self._pool, _LEFT, user_id)
        if not left:
            await self._index.delete_user(user_id)
        return EraseAccountDataResponse(done=not left, erased={"documents": before - left})

    async def ExportAccountData(
        self, request: ExportAccountDataRequest, context: Any
    ) -> AsyncIterator[ExportAccountDataResponse]:
        """Every document: what is known of it as JSON, and the file as it was uploaded."""
        user_id = account_to(EXPORT)
        after = None
        while page := await fetch(self._pool, _EXPORTED, user_id, after):
            for row in page:
                folder = f"documents/{row['document_id']}"
                about = json.dumps(json.loads(row["content"]), ensure_ascii=False).encode()
                for part in parts(about + b"\n"):
                    yield ExportAccountDataResponse(path=f"{folder}.json", content=part)
                key = DocumentKey(user_id, row["document_id"], row["digest"])
                async with self._spool.fetched(self._files, key) as path:
                    with path.open("rb") as file:
                        while content := file.read(PART_BYTES):
                            yield ExportAccountDataResponse(path=f"{folder}.bin", content=content)
            after = page[-1]["document_id"]
