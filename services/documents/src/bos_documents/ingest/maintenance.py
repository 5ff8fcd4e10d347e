"""Periodic checks: broken-off uploads, vectors that were lost, documents of a former model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from bos_documents.context import ENTRIES
from bos_documents.store.documents import CHANNEL
from bos_errors import BosError
from bos_postgres import execute, fetch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_documents.metrics import DocumentsMetrics
    from bos_documents.ports import Engines
    from bos_documents.settings import DocumentsSettings
    from bos_documents.store.documents import Documents
    from bos_documents.store.jobs import Jobs

_AT_ONCE: Final = 50
# Those with a job are looked at when it ends.
_DUE = """
UPDATE documents SET checked_at = now() WHERE document_id IN (
    SELECT document_id FROM documents AS d
    WHERE serving > 0 AND state = 'ready' AND checked_at < now() - make_interval(secs => $1)
          AND model = $2 AND NOT EXISTS (SELECT FROM jobs AS j WHERE j.document_id = d.document_id)
    ORDER BY checked_at LIMIT $3 FOR UPDATE SKIP LOCKED)
RETURNING document_id, user_id, serving, serving_chunks
"""
_REPAIR = f"""
WITH added AS (
    INSERT INTO jobs (document_id, user_id, generation, stage, quiet, model)
    SELECT document_id, user_id, serving, 'index', true, model FROM documents
    WHERE document_id = $1 AND serving = $2 AND state = 'ready'
    ON CONFLICT (document_id) DO NOTHING RETURNING 1)
SELECT pg_notify('{CHANNEL}', 'work') FROM added
"""  # noqa: S608  our own text
_OTHER_MODEL = f"""
WITH found AS (
    SELECT document_id FROM documents AS d
    WHERE serving > 0 AND state = 'ready' AND model <> $1
          AND NOT EXISTS (SELECT FROM jobs AS j WHERE j.document_id = d.document_id)
    LIMIT $2 FOR UPDATE SKIP LOCKED
), counted AS (
    UPDATE documents AS d SET generation = d.generation + 1 FROM found
    WHERE d.document_id = found.document_id
    RETURNING d.document_id, d.user_id, d.generation
), added AS (
    INSERT INTO jobs (document_id, user_id, generation, stage, quiet)
    SELECT document_id, user_id, generation, 'copy', true FROM counted
    ON CONFLICT (document_id) DO NOTHING RETURNING 1)
SELECT pg_notify('{CHANNEL}', 'work') FROM added
"""  # noqa: S608
_MISSING = """
SELECT wanted.id FROM unnest($1::uuid[]) AS wanted (id)
WHERE NOT EXISTS (SELECT FROM chunks AS c WHERE c.chunk_id = wanted.id AND c.user_id = $2)
  AND NOT EXISTS (SELECT FROM documents AS d WHERE d.document_id = wanted.id AND d.user_id = $2)
"""


class Maintenance:
    """Keeps store and index in step.

    Args:
        pool: Connections of the service's own role.
        documents: The store.
        jobs: Their jobs.
        engines: The index, and the model that serves.
        settings: How often.
        metrics: Gauges and counts.
        telemetry: For the log.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        documents: Documents,
        jobs: Jobs,
        engines: Engines,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._pool = pool
        self._documents = documents
        self._jobs = jobs
        self._engines = engines
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.documents.maintenance")

    async def work(self) -> None:
        """Look from time to time, until cancelled."""
        while True:
            try:
                await self.look()
            except BosError as error:
                self._log.warning("maintenance put off", error=error.reason)
            except Exception:
                self._log.exception("maintenance failed")
            await asyncio.sleep(self._settings.poll_s)

    async def look(self) -> None:
        """Every check once, on a bounded number of documents."""
        waiting, oldest_s = await self._jobs.waiting()
        self._metrics.waiting.set(waiting)
        self._metrics.oldest.set(oldest_s)
        await self._documents.hide_unstored()
        await execute(self._pool, _OTHER_MODEL, self._engines.model, _AT_ONCE)
        await self._check_counts()

    async def _check_counts(self) -> None:
        model = self._engines.model
        due = await fetch(self._pool, _DUE, self._settings.check_interval_s, model, _AT_ONCE)
        for row in due:
            document_id = row["document_id"]
            found = await self._engines.index.count(row["user_id"], model, str(document_id))
            if missing := max(0, row["serving_chunks"] + ENTRIES - found):
                self._metrics.repairs.labels("document").inc()
                self._log.warning("index lost chunks", missing=missing)
                await execute(self._pool, _REPAIR, document_id, row["serving"])

    async def remove_orphans(self, user_id: str, model: str, chunk_ids: Sequence[UUID]) -> None:
        """Remove vectors that a search found and that belong to no chunk of any reading.

        Raises:
            BosError: store or index do not answer; the next search finds them again.
        """
        rows = await fetch(self._pool, _MISSING, list(chunk_ids), user_id)
        if rows:
            gone = [str(row["id"]) for row in rows]
            self._metrics.repairs.labels("orphans").inc(len(gone))
            await self._engines.index.delete_chunks(user_id, model, gone)
