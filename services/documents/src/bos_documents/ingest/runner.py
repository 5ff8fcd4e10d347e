"""Runs jobs of documents: claims, renews, retries with back-off, gives up on poison files."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from bos_chassis.backoff import Backoff
from bos_chassis.concurrency.tasks import running_task
from bos_chassis.telemetry import Telemetry
from bos_documents.ingest.stages import Stages
from bos_documents.metrics import DocumentsMetrics
from bos_documents.parsing.port import ParserFailed
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.settings import DocumentsSettings
from bos_documents.store.jobs import Job, JobLost, Jobs, Stage
from bos_errors import BosError

QUARANTINED: Final = "DOCUMENT_UNREADABLE"
_QUARANTINE_TEXT: Final = (
    "Reading this file failed {attempts} times and was given up. Save it anew or in another format "
    "and upload that, or have it read again."
)
_JITTER: Final = 0.5
_RENEWALS: Final = 3
"""Renewals within one lease."""
_SAFE_SHARE: Final = 0.8
"""Of a lease that could not be renewed; after it the job is left to others."""
_STOP_S: Final = 30.0


@dataclass(eq=False, slots=True)
class _Running:
    """A job that this replica works on."""

    job: Job
    task: asyncio.Task[None]
    renewed_at: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Runner:
    """Works on the jobs of all users, a bounded number at once.

    Args:
        jobs: Where they are kept.
        stages: What is done for them.
        settings: Bounds and times.
        metrics: Counts outcomes.
        telemetry: For the log, which holds nothing of documents.
    """

    def __init__(
        self,
        jobs: Jobs,
        stages: Stages,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._jobs = jobs
        self._stages = stages
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.documents.jobs")
        self._backoff = Backoff(settings.retry_first_s, settings.retry_cap_s, jitter=_JITTER)
        self._wake = asyncio.Event()
        self._running: dict[UUID, _Running] = {}
        self._paused: Counter[UUID] = Counter()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work while the block runs; jobs under way are left to others at its end."""
        workers = [
            asyncio.create_task(self._work(), name="documents-worker")
            for _ in range(self._settings.workers)
        ]
        try:
            async with running_task(self._renew(), "documents-leases"):
                try:
                    yield
                finally:
                    for worker in workers:
                        worker.cancel()
                    await asyncio.gather(*workers, return_exceptions=True)
        finally:
            self._running.clear()

    def wake(self) -> None:
        """There may be work."""
        self._wake.set()

    async def check(self, document_id: UUID) -> None:
        """End the work on a document if its job has another owner by now, or none."""
        found = self._running.get(document_id)
        if found is not None:
            with suppress(BosError):
                if not await self._jobs.renew([found.job]):
                    found.task.cancel()

    @asynccontextmanager
    async def paused(self, document_id: UUID) -> AsyncIterator[None]:
        """Work on a document is ended, and not begun here but by :meth:`run_now` in the block."""
        self._paused[document_id] += 1
        try:
            await self._stop(document_id)
            yield
        finally:
            self._paused[document_id] -= 1
            if not self._paused[document_id]:
                del self._paused[document_id]

    async def _stop(self, document_id: UUID) -> None:
        found = self._running.get(document_id)
        if found is not None:
            found.task.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await found.ended.wait()

    async def run_now(self, document_id: UUID) -> bool:
        """Work on a document without waiting for a worker; whether its job is done.

        Cancelled, the job is left to others.
        """
        job = await self._jobs.claim_of(document_id)
        if job is None:
            return False
        await self._watched(job)
        return True

    async def _work(self) -> None:
        while True:
            self._wake.clear()
            try:
                job = await self._jobs.claim(leaving_out=list(self._paused))
                if job is not None:
                    await self._watched(job)
                    continue
            except BosError as error:
                self._log.warning("no job claimed", error=error.reason)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_s):
                    await self._wake.wait()

    async def _watched(self, job: Job) -> None:
        """Run a job in a task that can be cancelled by itself."""
        now = asyncio.get_running_loop().time()
        task = asyncio.create_task(self._run(job), name=f"document {job.document_id}")
        entry = self._running[job.document_id] = _Running(job, task, now)
        try:
            # wait: the end of the job alone is no end of the worker.
            await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.wait([task])
            if self._running.get(job.document_id) is entry:
                del self._running[job.document_id]
            entry.ended.set()

    async def _run(self, job: Job) -> None:
        """Stage after stage, until the job is done, lost, or has to wait."""
        following: Job | None = job
        if job.deaths > self._settings.max_attempts and job.stage is not Stage.DELETE:
            following = await self._given_up(replace(job, attempts=max(job.attempts, job.deaths)))
        while following is not None:
            job = following
            stage = job.stage
            try:
                following = await self._stages.run(job)
            except asyncio.CancelledError:
                await self._leave(job, 0.0)
                raise
            except JobLost:
                self._metrics.stages.labels(stage, "lost").inc()
                return
            except DocumentRejected as refusal:
                self._metrics.stages.labels(stage, "rejected").inc()
                self._log.info("document rejected", stage=stage, reason=refusal.reason)
                following = await self._rejected(job, refusal.reason, refusal.message)
            except Exception as error:
                self._metrics.stages.labels(stage, "failed").inc()
                following = await self._failed(job, error)
            else:
                self._metrics.stages.labels(stage, "done").inc()

    async def _failed(self, job: Job, error: Exception) -> Job | None:
        """Try again later, or give the document up if it may be the cause."""
        reason = error.reason if isinstance(error, BosError | ParserFailed) else "INTERNAL"
        blamed = _blames_document(error)
        if not isinstance(error, BosError | ParserFailed | MemoryError):
            self._log.exception("stage failed", stage=job.stage, document=str(job.document_id))
        job = replace(job, attempts=job.attempts + blamed, waits=job.waits + (not blamed))
        if blamed and job.attempts >= self._settings.max_attempts and job.stage is not Stage.DELETE:
            self._log.warning("document given up", stage=job.stage, reason=reason)
            return await self._given_up(job)
        failures = job.attempts + job.waits
        wait_s = self._backoff.delay(failures, random.random())  # noqa: S311  spreads attempts
        self._log.info("stage put off", stage=job.stage, reason=reason, wait_s=round(wait_s, 1))
        await self._leave(job, wait_s)
        return None

    async def _given_up(self, job: Job) -> Job | None:
        text = _QUARANTINE_TEXT.format(attempts=job.attempts)
        return await self._rejected(job, QUARANTINED, text)

    async def _rejected(self, job: Job, reason: str, message: str) -> Job | None:
        try:
            return await self._stages.reject(job, reason, message)
        except JobLost:
            return None
        except BosError as error:
            self._log.warning("rejection put off", error=error.reason)
            return None  # the lease runs out, and the next owner comes to the same

    async def _leave(self, job: Job, wait_s: float) -> None:
        """Leave the job to others, even while this task is being cancelled."""
        try:
            await asyncio.shield(asyncio.create_task(self._jobs.release(job, wait_s)))
        except BosError as error:
            self._log.warning("job not released", error=error.reason)

    async def _renew(self) -> None:
        clock = asyncio.get_running_loop().time
        lease_s = self._jobs.lease_s
        while True:
            await asyncio.sleep(lease_s / _RENEWALS)
            entries = list(self._running.values())
            if not entries:
                continue
            asked_at = clock()
            try:
                held = await self._jobs.renew([each.job for each in entries])
            except Exception as error:
                self._log.warning("leases not renewed", error=type(error).__name__)
                for each in entries:
                    if clock() - each.renewed_at > _SAFE_SHARE * lease_s:
                        each.task.cancel()
                continue
            for each in entries:
                if each.job.document_id in held:
                    each.renewed_at = asked_at
                else:
                    each.task.cancel()


def _blames_document(error: Exception) -> bool:
    """Whether the document may be the cause: services that are away, or memory, are not."""
    if isinstance(error, ParserFailed):
        return error.by_document
    return not isinstance(error, BosError | MemoryError | OSError)
