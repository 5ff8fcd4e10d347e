"""Jobs of documents: claimed with a lease, and fenced against owners that lost theirs."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from bos_documents.store.documents import CHANNEL
from bos_postgres import acquire, execute, fetch, fetchrow, statement_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from uuid import UUID

    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Pool = asyncpg.Pool[asyncpg.Record]
    Connection = PoolConnectionProxy[asyncpg.Record]


class Stage(StrEnum):
    """What is next for a document."""

    PARSE = "parse"
    CHUNK = "chunk"
    DESCRIBE = "describe"
    COPY = "copy"
    """Another embedding model: the chunks that can be found become those of a new reading."""
    INDEX = "index"
    PUBLISH = "publish"
    CLEAN = "clean"
    """Chunks of earlier readings leave the index, and what is there is counted."""
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its owner has it."""

    document_id: UUID
    user_id: str
    generation: int
    stage: Stage
    fence: int
    quiet: bool = False
    model: str = ""
    done: int = 0
    attempts: int = 0
    deaths: int = 0
    waits: int = 0
    found: Mapping[str, Any] = field(default_factory=dict)


class JobLost(Exception):
    """The job is another owner's by now, or gone: what was done for it counts no more."""


_COLUMNS: Final = (
    "document_id, user_id, generation, stage, fence, quiet, model, done, attempts, deaths, waits, "
    "found"
)
# Of users who have fewest jobs under way first, so that one with a thousand holds up no other.
_CLAIM = f"""
UPDATE jobs SET owner = $1, fence = fence + 1, lease_until = now() + make_interval(secs => $2),
                deaths = deaths + CASE WHEN owner IS NULL THEN 0 ELSE 1 END
WHERE document_id = (
    SELECT document_id FROM jobs AS j
    WHERE not_before <= now() AND (lease_until IS NULL OR lease_until < now())
          AND document_id <> ALL ($3::uuid[])
    ORDER BY stage <> 'delete',
             (SELECT count(*) FROM jobs AS r WHERE r.user_id = j.user_id AND r.lease_until > now()),
             quiet, not_before, created_at
    LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING {_COLUMNS}
"""  # noqa: S608  our own text
_CLAIM_ONE = f"""
UPDATE jobs SET owner = $1, fence = fence + 1, lease_until = now() + make_interval(secs => $2)
WHERE document_id = (
    SELECT document_id FROM jobs
    WHERE document_id = $3 AND not_before <= now()
          AND (lease_until IS NULL OR lease_until < now())
    FOR UPDATE SKIP LOCKED)
RETURNING {_COLUMNS}
"""  # noqa: S608
# A job in the middle of a step is locked by that: it is held all the same.
_RENEW = """
WITH mine AS (SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS mine (document_id, fence)),
free AS (
    SELECT j.document_id FROM jobs AS j JOIN mine USING (document_id, fence)
    FOR UPDATE OF j SKIP LOCKED
), renewed AS (
    UPDATE jobs AS j SET lease_until = now() + make_interval(secs => $3) FROM free
    WHERE j.document_id = free.document_id)
SELECT j.document_id FROM jobs AS j JOIN mine USING (document_id, fence)
"""
_FENCE = """
UPDATE jobs SET lease_until = now() + make_interval(secs => $3)
WHERE document_id = $1 AND fence = $2 RETURNING 1
"""
_ADVANCE = """
UPDATE jobs SET stage = $2, done = $3, model = $4, found = $5, attempts = $6, deaths = 0, waits = 0
WHERE document_id = $1
"""
_RELEASE = """
UPDATE jobs SET owner = NULL, lease_until = NULL, not_before = now() + make_interval(secs => $3),
                attempts = $4, waits = $5
WHERE document_id = $1 AND fence = $2
"""
_FINISH = "DELETE FROM jobs WHERE document_id = $1"
_SOON = f"SELECT pg_notify('{CHANNEL}', 'work')"
# A job that services failed is due again and again: it counts from its beginning, tried now or not.
_WAITING = """
SELECT count(*) FILTER (WHERE due) AS waiting,
       coalesce(extract(epoch FROM now() - min(since) FILTER (WHERE due OR put_off)), 0)::float8
           AS oldest_s
FROM (
    SELECT not_before <= now() AND (lease_until IS NULL OR lease_until < now()) AS due,
           waits > 0 AS put_off,
           CASE WHEN waits > 0 THEN created_at ELSE not_before END AS since
    FROM jobs) AS j
"""


class Jobs:
    """Jobs of all users.

    Args:
        pool: Connections of the service's own role.
        owner: Id of this replica.
        lease_s: After so long without renewal another owner may claim.
    """

    def __init__(self, pool: Pool, owner: UUID, lease_s: float) -> None:
        self._pool = pool
        self._owner = owner
        self.lease_s = lease_s

    async def claim(self, leaving_out: Sequence[UUID] = ()) -> Job | None:
        """The next job that is due, of other documents than these; None if there is none."""
        row = await fetchrow(self._pool, _CLAIM, self._owner, self.lease_s, leaving_out)
        return None if row is None else _job(row)

    async def claim_of(self, document_id: UUID) -> Job | None:
        """The job of this document, if it is due."""
        row = await fetchrow(self._pool, _CLAIM_ONE, self._owner, self.lease_s, document_id)
        return None if row is None else _job(row)

    async def renew(self, jobs: Sequence[Job]) -> set[UUID]:
        """Hold these for another lease; returns the documents of those that are still held."""
        keys, fences = [job.document_id for job in jobs], [job.fence for job in jobs]
        rows = await fetch(self._pool, _RENEW, keys, fences, self.lease_s)
        return {row["document_id"] for row in rows}

    @asynccontextmanager
    async def step(self, job: Job) -> AsyncIterator[Connection]:
        """A transaction of the job's owner, which renews its lease.

        Raises:
            JobLost: it is not that any more.
            Unavailable, DeadlineExceeded: as :func:`bos_postgres.acquire`.
        """
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                async with connection.transaction():
                    if not await connection.fetchval(
                        _FENCE, job.document_id, job.fence, self.lease_s
                    ):
                        raise JobLost
                    yield connection

    async def release(self, job: Job, wait_s: float = 0.0) -> None:
        """Leave the job, with its counts, to anyone after ``wait_s`` seconds."""
        await execute(
            self._pool,
            _RELEASE,
            job.document_id,
            job.fence,
            wait_s,
            job.attempts,
            job.waits,
        )

    async def waiting(self) -> tuple[int, float]:
        """Jobs that are due and have no owner, and for how many seconds the oldest one waits.

        One that services that are away put off waits as well.
        """
        row = await fetchrow(self._pool, _WAITING)
        assert row is not None
        return row["waiting"], row["oldest_s"]


async def advance(connection: Connection, job: Job) -> None:
    """Store how far the job has got, in the transaction of :meth:`Jobs.step`."""
    await connection.execute(
        _ADVANCE,
        job.document_id,
        job.stage,
        job.done,
        job.model,
        json.dumps(job.found),
        job.attempts,
    )


async def finish(connection: Connection, job: Job) -> None:
    """Nothing is left to do, in the transaction of :meth:`Jobs.step`."""
    await connection.execute(_FINISH, job.document_id)


async def announce(connection: Connection) -> None:
    """Tell the replicas that there is work, once the transaction stands."""
    await connection.execute(_SOON)


def _job(row: asyncpg.Record) -> Job:
    values = dict(row)
    return Job(**{**values, "stage": Stage(values["stage"]), "found": json.loads(values["found"])})
