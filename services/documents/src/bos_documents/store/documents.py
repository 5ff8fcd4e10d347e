"""Documents in PostgreSQL: registered, listed, re-read, deleted."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from bos_chassis.paging import after_ordinal, after_time, ordinal_token, time_token, word_patterns
from bos_documents.store.rows import (
    CHUNK_COLUMNS,
    DOCUMENT_COLUMNS,
    chunk_of,
    document_of,
    stored_states,
)
from bos_errors import Aborted, NotFound, ResourceExhausted
from bos_postgres import fetch, fetchrow, for_user
from bos_postgres.audit import deed, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos.documents.v1 import (
        Chunk,
        Document,
        GetChunkRequest,
        ListChunksRequest,
        ListDocumentsRequest,
    )
    from bos_postgres.audit import By

    Pool = asyncpg.Pool[asyncpg.Record]

CHANNEL: Final = "bos_documents"
"""Notifications: ``work``; ``changed ID`` of documents; ``stop ID`` of jobs that lost theirs."""
_DEFAULT_PAGE: Final = 50

# Uploads of one user take turns while they are counted.
USER_LOCK: Final = "SELECT pg_advisory_xact_lock(20261124, hashtext($1))"
_SAME = """
SELECT document_id, state FROM documents
WHERE user_id = $1 AND digest = $2 AND state <> 'deleting' FOR UPDATE
"""
_HELD = """
SELECT count(*) AS documents, coalesce(sum(size_bytes), 0)::bigint AS bytes FROM documents
WHERE user_id = $1 AND state <> 'deleting'
"""
_REGISTER = """
INSERT INTO documents (document_id, user_id, digest, size_bytes, name, given_type, given_date,
                       state)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'storing')
"""
_TOUCH = "UPDATE documents SET touched_at = now() WHERE document_id = $1"
_STORED = """
UPDATE documents SET state = 'queued', generation = generation + 1
WHERE document_id = $1 AND state = 'storing' RETURNING user_id, generation
"""
_STATE = "SELECT state FROM documents WHERE document_id = $1"
_QUEUE = """
INSERT INTO jobs (document_id, user_id, generation, stage) VALUES ($1, $2, $3, 'parse')
"""
_WORK = f"SELECT pg_notify('{CHANNEL}', 'work')"
_STOP = f"SELECT pg_notify('{CHANNEL}', 'stop ' || $1::text)"
_GET = for_user(
    f"SELECT {DOCUMENT_COLUMNS} FROM documents "  # noqa: S608
    "WHERE user_id = $1 AND document_id = $2 AND state NOT IN ('storing', 'deleting')"
)
_LIST = for_user(f"""
SELECT {DOCUMENT_COLUMNS} FROM documents
WHERE user_id = $1 AND state NOT IN ('storing', 'deleting') AND (created_at, document_id) < ($2, $3)
  AND (cardinality($5::text[]) = 0
       OR concat_ws(' ', name, document_type, array_to_string(topics, ' ')) ILIKE ALL ($5))
  AND (cardinality($6::text[]) = 0 OR state = ANY ($6))
ORDER BY created_at DESC, document_id DESC LIMIT $4
""")  # noqa: S608
_CHUNKS = for_user(f"""
SELECT {CHUNK_COLUMNS} FROM documents AS d
JOIN chunks AS c ON c.document_id = d.document_id AND c.generation = d.serving
WHERE d.user_id = $1 AND c.user_id = $1 AND d.document_id = $2
      AND d.state NOT IN ('storing', 'deleting') AND c.ordinal > $3
ORDER BY c.ordinal LIMIT $4
""")  # noqa: S608
_CHUNK = for_user(f"""
WITH wanted AS (
    SELECT c.document_id, c.generation, c.ordinal FROM chunks AS c
    JOIN documents AS d ON d.document_id = c.document_id AND d.serving = c.generation
    WHERE c.user_id = $1 AND d.user_id = $1 AND c.chunk_id = $2 AND d.state <> 'deleting'
)
SELECT {CHUNK_COLUMNS}, c.ordinal - w.ordinal AS place
FROM wanted AS w
JOIN chunks AS c ON c.document_id = w.document_id AND c.generation = w.generation
     AND c.ordinal BETWEEN w.ordinal - $3 AND w.ordinal + $4
JOIN documents AS d ON d.document_id = c.document_id
ORDER BY c.ordinal
""")  # noqa: S608
# The job first, as its owner does: neither then waits for the other.
_LOCK_JOB = """
SELECT owner, quiet, stage FROM jobs WHERE document_id = $1 AND user_id = $2 FOR UPDATE
"""
_LOCK_DOCUMENT = """
SELECT state FROM documents
WHERE document_id = $1 AND user_id = $2 AND state <> 'deleting'
      AND (state = 'storing') = $3 FOR UPDATE
"""
_HIDE = """
UPDATE documents SET state = 'deleting', serving = 0, serving_chunks = 0 WHERE document_id = $1
"""
_EMPTY = (
    "DELETE FROM chunks WHERE document_id = $1",
    "DELETE FROM pages WHERE document_id = $1",
)
# What the owner of the job has sent to the index is there once its lease is over, at the latest; a
# file that is being stored, once that has taken as long as it may.
_DELETE_JOB = """
INSERT INTO jobs AS j (document_id, user_id, generation, stage, not_before)
VALUES ($1, $2, 0, 'delete', now() + make_interval(secs => $3))
ON CONFLICT (document_id) DO UPDATE
SET stage = 'delete', quiet = false, fence = j.fence + 1, attempts = 0, deaths = 0, waits = 0,
    found = '{}', owner = NULL, lease_until = NULL,
    not_before = CASE WHEN j.owner IS NULL THEN now() ELSE greatest(now(), j.lease_until) END
"""
_AGAIN = """
UPDATE documents
SET state = 'queued', generation = generation + 1, failure_reason = '', failure_message = '',
    pages_parsed = 0, chunks_total = 0, chunks_indexed = 0, attempts = 0
WHERE document_id = $1 RETURNING generation
"""
_AGAIN_JOB = """
INSERT INTO jobs AS j (document_id, user_id, generation, stage) VALUES ($1, $2, $3, 'parse')
ON CONFLICT (document_id) DO UPDATE
SET stage = 'parse', generation = excluded.generation, quiet = false, model = '', done = 0,
    found = '{}', attempts = 0, deaths = 0, waits = 0, fence = j.fence + 1, owner = NULL,
    lease_until = NULL, not_before = now()
"""
_UNSTORED = """
SELECT document_id, user_id FROM documents
WHERE state = 'storing' AND touched_at < now() - make_interval(secs => $1) LIMIT 100
"""
_OF_USER = "SELECT document_id FROM documents WHERE user_id = $1 ORDER BY document_id LIMIT $2"
STORING_S: Final = 150.0
"""Longest time that storing a file takes, beyond the deadline of the artefact store."""


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Bounds of what one user may have."""

    documents: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file, before it is stored."""

    name: str
    digest: bytes
    size_bytes: int
    given_type: str = ""
    given_date: int = 0
    """As YYYYMMDD; 0 if it is to be found."""


@dataclass(frozen=True, slots=True)
class Registered:
    """An upload that has its row."""

    document_id: UUID
    existed: bool
    stored: bool
    """Whether its file is stored already."""


class Documents:
    """Documents of users.

    Args:
        pool: Connections of the service's own role.
        readers: Connections of the role that sees the rows of one user.
        limits: Of each user.
    """

    def __init__(self, pool: Pool, readers: Pool, limits: UserLimits) -> None:
        self._pool = pool
        self._readers = readers
        self._limits = limits

    async def register(self, user_id: str, upload: Upload) -> Registered:
        """The row of an upload, so that its file has an owner before it is stored.

        Raises:
            ResourceExhausted: the user has as many documents, or bytes, as one may have.
        """
        async with deed(self._pool) as connection:
            await connection.execute(USER_LOCK, user_id)
            same = await connection.fetchrow(_SAME, user_id, upload.digest)
            if same is not None:
                await connection.execute(_TOUCH, same["document_id"])
                stored = same["state"] != "storing"
                return Registered(same["document_id"], existed=True, stored=stored)
            held = await connection.fetchrow(_HELD, user_id)
            assert held is not None
            if held["documents"] >= self._limits.documents:
                raise ResourceExhausted(
                    f"You have {held['documents']} documents, and {self._limits.documents} is the "
                    "most; delete one first.",
                    reason="DOCUMENT_COUNT_LIMIT",
                )
            if held["bytes"] + upload.size_bytes > self._limits.size_bytes:
                raise ResourceExhausted(
                    f"Your documents would have more than {self._limits.size_bytes} bytes; delete "
                    "one first.",
                    reason="DOCUMENT_BYTES_LIMIT",
                )
            document_id = uuid4()
            await connection.execute(
                _REGISTER,
                document_id,
                user_id,
                upload.digest,
                upload.size_bytes,
                upload.name,
                upload.given_type,
                upload.given_date,
            )
        return Registered(document_id, existed=False, stored=False)

    async def stored(self, document_id: UUID, by: By) -> None:
        """The file is stored: queue it to be read.

        Raises:
            Aborted: the document was deleted meanwhile.
        """
        async with deed(self._pool) as connection:
            row = await connection.fetchrow(_STORED, document_id)
            if row is None:
                # Another upload of the same content was faster, or it was deleted.
                if await connection.fetchval(_STATE, document_id) in (None, "deleting"):
                    raise Aborted(
                        "The document was deleted while it was uploaded; upload it again.",
                        reason="DOCUMENT_DELETED",
                    )
                return
            await connection.execute(_QUEUE, document_id, row["user_id"], row["generation"])
            await record(connection, [by.entry("document.uploaded", str(document_id))])
            await connection.execute(_WORK)

    async def get(self, document_id: str, user_id: str) -> Document:
        """One of the user's documents.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        return (await self.current(document_id, user_id))[0]

    async def current(self, document_id: str, user_id: str) -> tuple[Document, int]:
        """One of the user's documents with its version.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        row = await fetchrow(self._readers, _GET, user_id, user_id, _key(document_id))
        if row is None:
            raise no_document()
        return document_of(row), row["version"]

    async def listed(
        self, request: ListDocumentsRequest, user_id: str
    ) -> tuple[list[Document], str]:
        """A page of the user's documents, newest first, and the token of the next page.

        Raises:
            InvalidArgument: the page token is not one of ours, or the query has too many words.
        """
        size = request.page_size or _DEFAULT_PAGE
        before = after_time(request.page_token)
        sought = word_patterns(request.query), stored_states(request.states)
        rows = await fetch(self._readers, _LIST, user_id, user_id, *before, size + 1, *sought)
        last = rows[size - 1] if len(rows) > size else None
        token = time_token(last["created_at"], last["document_id"]) if last else ""
        return [document_of(row) for row in rows[:size]], token

    async def chunks(self, request: ListChunksRequest, user_id: str) -> tuple[list[Chunk], str]:
        """A page of a document's chunks that can be found, and the token of the next page.

        Raises:
            NotFound: there is no such document, or it belongs to another user.
            InvalidArgument: the page token is not one of ours.
        """
        key, size = _key(request.document_id), request.page_size or _DEFAULT_PAGE
        after = after_ordinal(request.page_token)
        rows = await fetch(self._readers, _CHUNKS, user_id, user_id, key, after, size + 1)
        if not rows:
            await self.get(request.document_id, user_id)
        token = ordinal_token(rows[size - 1]["ordinal"]) if len(rows) > size else ""
        return [chunk_of(row) for row in rows[:size]], token

    async def chunk(
        self, request: GetChunkRequest, user_id: str
    ) -> tuple[Chunk, Sequence[Chunk], Sequence[Chunk]]:
        """A chunk that can be found, with those before and after it.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        try:
            key = UUID(request.chunk_id)
        except ValueError:
            raise _no_chunk() from None
        rows = await fetch(
            self._readers, _CHUNK, user_id, user_id, key, request.before, request.after
        )
        found = {row["place"]: chunk_of(row) for row in rows}
        if 0 not in found:
            raise _no_chunk()
        before = [chunk for place, chunk in found.items() if place < 0]
        return found[0], before, [chunk for place, chunk in found.items() if place > 0]

    async def hide(
        self, document_id: str | UUID, user_id: str, by: By | None, *, storing: bool = False
    ) -> UUID:
        """Take one of the user's documents from sight, and queue the deletion of all of it.

        Its rows, chunks and pages are gone when this returns; its row goes with its vectors and
        its file.

        Args:
            document_id: The document.
            user_id: Whose it is.
            by: Who deletes it; None leaves no entry, which identity does for an account.
            storing: One whose upload has not ended, and only such a one.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        key = _key(document_id)
        async with deed(self._pool) as connection:
            await connection.fetchrow(_LOCK_JOB, key, user_id)
            if await connection.fetchrow(_LOCK_DOCUMENT, key, user_id, storing) is None:
                raise no_document()
            await connection.execute(_HIDE, key)
            for statement in _EMPTY:
                await connection.execute(statement, key)
            wait_s = STORING_S if storing else 0.0
            await connection.execute(_DELETE_JOB, key, user_id, wait_s)
            if by is not None:
                await record(connection, [by.entry("document.deleted", str(key))])
            await connection.execute(_STOP, str(key))
        return key

    async def read_again(self, document_id: str, user_id: str, by: By) -> None:
        """Queue one of the user's documents to be read anew; nothing if it is being read.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        key = _key(document_id)
        async with deed(self._pool) as connection:
            job = await connection.fetchrow(_LOCK_JOB, key, user_id)
            if await connection.fetchrow(_LOCK_DOCUMENT, key, user_id, False) is None:
                raise no_document()
            # One that cleans up has ended for its owner, who may want another at once.
            if job is not None and not job["quiet"] and job["stage"] != "clean":
                return
            generation = await connection.fetchval(_AGAIN, key)
            await connection.execute(_AGAIN_JOB, key, user_id, generation)
            await record(connection, [by.entry("document.reindexed", str(key))])
            await connection.execute(_STOP, str(key))
            await connection.execute(_WORK)

    async def hide_unstored(self) -> int:
        """Queue the deletion of uploads that ended before their file was stored; how many."""
        rows = await fetch(self._pool, _UNSTORED, STORING_S)
        for row in rows:
            with suppress(NotFound):
                await self.hide(row["document_id"], row["user_id"], None, storing=True)
        return len(rows)

    async def hide_for_good(self, document_id: UUID, user_id: str) -> None:
        """Hide a document in any state without an audit entry; it may not exist."""
        for storing in (False, True):
            with suppress(NotFound):
                await self.hide(document_id, user_id, None, storing=storing)

    async def of_user(self, user_id: str, limit: int) -> Sequence[UUID]:
        """Some documents of a user, those that are being deleted too."""
        rows = await fetch(self._pool, _OF_USER, user_id, limit)
        return [row["document_id"] for row in rows]


def no_document() -> NotFound:
    """There is no such document, as far as the caller may know."""
    return NotFound("There is no such document.")


def _no_chunk() -> NotFound:
    return NotFound("There is no such passage.")


def _key(document_id: str | UUID) -> UUID:
    try:
        return document_id if isinstance(document_id, UUID) else UUID(document_id)
    except ValueError:
        raise no_document() from None
