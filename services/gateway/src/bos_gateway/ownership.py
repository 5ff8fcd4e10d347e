"""Who owns a run: one lease per replica, an epoch per run, adoption of what nobody owns.

All times are the database's, so replicas need not agree on the time. A run is taken by raising its
epoch; from that moment the log refuses whatever an earlier owner still tries to write. Statements
that others must hear of say so themselves (``bulletin.py``), so the message comes with the commit.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg

from bos.gateway.v1 import RUN_STATUS_WAITING_FOR_APPROVAL
from bos_chassis.errors import Unavailable
from bos_gateway.bulletin import CHANNEL
from bos_gateway.commits import (
    ADD_INPUT,
    ADOPT,
    FORGET_DEAD,
    RELEASE,
    RELEASE_ALL,
    TAKE_LEASE,
    committing,
)
from bos_gateway.poison import GETS_FURTHER, LEASE_EXPIRED, RELEASED, RESUMED
from bos_postgres import acquire, fetch, fetchval, statement_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime
    from uuid import UUID

    from bos.runlog.v1 import LogEvent
    from bos_gateway.commits import CommitObserver

# Raising the epochs of what is still ours makes this replica its own successor: whatever it was
# about to write before it lost the lease is refused.
#
# Whoever locks several runs locks them in the order of their ids, as the log's writer does.
_TAKE = """
WITH lease AS (
    INSERT INTO replicas (replica_id, lease_until) VALUES ($1, now() + make_interval(secs => $2))
    ON CONFLICT (replica_id) DO UPDATE SET lease_until = excluded.lease_until
), locked AS (
    SELECT run_id FROM runs WHERE replica_id = $1 AND finished_at IS NULL
    ORDER BY run_id
    FOR NO KEY UPDATE
), ours AS (
    UPDATE runs AS r SET epoch = epoch + 1 FROM locked AS l WHERE r.run_id = l.run_id
    RETURNING r.run_id, r.epoch
)
SELECT now() AS written_at, run_id, epoch FROM (SELECT) AS one LEFT JOIN ours ON true
"""
#
# A run that waits for a person is left alone until there is an input for it: a decision, or a
# request to cancel. An input is there until its event is in the log, so none is slept through.
#
# Every adoption of a run whose owner died counts that death, in the same commit: else the deaths of
# those that die of the adoption itself would never be known.
_ADOPT = """
WITH free AS (
    SELECT r.run_id, r.replica_id IS NULL AS released
    FROM runs AS r LEFT JOIN replicas AS p ON p.replica_id = r.replica_id
    WHERE r.finished_at IS NULL AND r.replica_id IS DISTINCT FROM $1
          AND (r.status <> $2 OR EXISTS (SELECT FROM run_inputs AS i WHERE i.run_id = r.run_id))
          AND (r.replica_id IS NULL
               OR now() < $5 AND (p.replica_id IS NULL OR p.lease_until < now()))
          AND r.run_id <> ALL ($4) AND (r.deaths > 0) = $6
    ORDER BY r.created_at
    LIMIT $3
    FOR UPDATE OF r SKIP LOCKED
), further AS (
    SELECT f.run_id, max(e.sequence) AS sequence
    FROM free AS f JOIN run_events AS e USING (run_id)
    WHERE NOT f.released AND e.kind = ANY ($7)
    GROUP BY f.run_id
)
UPDATE runs AS r SET
    replica_id = $1, epoch = epoch + 1,
    deaths = CASE WHEN free.released THEN r.deaths
                  WHEN further.sequence > r.deaths_after THEN 1
                  ELSE r.deaths + 1 END,
    deaths_after = coalesce(further.sequence, r.deaths_after)
FROM free LEFT JOIN further USING (run_id)
WHERE r.run_id = free.run_id
RETURNING r.run_id, r.epoch, free.released,
          CASE WHEN free.released THEN 0 ELSE r.deaths END AS deaths
"""
_NEXT_EXPIRY = """
SELECT extract(epoch FROM min(lease_until) - now())::float8 FROM replicas
WHERE lease_until >= now() AND replica_id <> $1
"""
_RELEASE = """
WITH gone AS (
    DELETE FROM replicas WHERE replica_id = $1
), locked AS (
    SELECT run_id FROM runs WHERE replica_id = $1 AND finished_at IS NULL
    ORDER BY run_id
    FOR NO KEY UPDATE
), freed AS (
    UPDATE runs AS r SET replica_id = NULL FROM locked AS l WHERE r.run_id = l.run_id
    RETURNING r.run_id
)
SELECT pg_notify($2, 'released') FROM freed LIMIT 1
"""
_RELEASE_ONE = """
WITH freed AS (
    UPDATE runs SET replica_id = NULL WHERE run_id = $1 AND epoch = $2 AND replica_id = $3
    RETURNING run_id
)
SELECT pg_notify($4, 'released') FROM freed
"""
_ADD_INPUT = """
WITH added AS (
    INSERT INTO run_inputs (run_id, kind, payload)
    SELECT run_id, $2, $3 FROM runs WHERE run_id = $1 AND finished_at IS NULL
    ON CONFLICT DO NOTHING
    RETURNING run_id
)
SELECT pg_notify($4, 'input ' || run_id), pg_notify($4, 'released') FROM added
"""
_INPUTS = "SELECT run_id, payload FROM run_inputs WHERE run_id = ANY ($1) ORDER BY created_at"
_UNDRIVEN = """
SELECT run_id, epoch FROM runs
WHERE replica_id = $1 AND finished_at IS NULL AND run_id <> ALL ($2)
LIMIT 100
"""
_FORGET_DEAD = "DELETE FROM replicas WHERE lease_until < now() - interval '1 day'"

_RELEASE_TRIES = 3
_DEADLOCK = "DATABASE_DEADLOCK"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A run that this replica has just taken over."""

    run_id: UUID
    epoch: int
    reason: str
    """As in ``bos.runlog.v1.RunAdopted``."""
    deaths: int = 0
    """If its last owner died: how many did in a row, without the run getting further."""


class Ownership:
    """The statements of ownership for one replica.

    Args:
        pool: Connections whose search path is the gateway's schema.
        replica_id: This process.
        lease_s: Life of the lease in seconds.
        observer: Told about commits.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        replica_id: UUID,
        lease_s: float,
        *,
        observer: CommitObserver | None = None,
    ) -> None:
        self._pool = pool
        self._replica_id = replica_id
        self._lease_s = lease_s
        self._observer = observer

    @property
    def replica_id(self) -> UUID:
        """This process."""
        return self._replica_id

    async def take(self) -> tuple[datetime, list[Adopted]]:
        """Take a lease, and those runs again that are still this replica's.

        Returns:
            When that was, by the database's clock, and the runs.
        """
        async with acquire(self._pool) as connection:
            with _errors(), committing(self._observer, (TAKE_LEASE,)):
                rows = await connection.fetch(_TAKE, self._replica_id, self._lease_s)
        ours = [Adopted(row["run_id"], row["epoch"], RESUMED) for row in rows if row["run_id"]]
        return rows[0]["written_at"], ours

    async def adopt(
        self,
        limit: int,
        except_for: Collection[UUID] = (),
        *,
        judge_until: datetime | None,
        suspect: bool = False,
    ) -> list[Adopted]:
        """Take up to ``limit`` runs that nobody owns, oldest first.

        Args:
            limit: Most runs to take.
            except_for: Runs to leave alone.
            judge_until: Until when, by the database's clock, a lease that has run out means that
                its replica died; None for released runs only.
            suspect: Take those whose owners died of late, instead of the others.
        """
        async with acquire(self._pool) as connection:
            with _errors(), committing(self._observer, (ADOPT,)) as kinds:
                rows = await connection.fetch(
                    _ADOPT,
                    self._replica_id,
                    RUN_STATUS_WAITING_FOR_APPROVAL,
                    limit,
                    list(except_for),
                    judge_until,
                    suspect,
                    list(GETS_FURTHER),
                )
                if not rows:
                    kinds.discard(ADOPT)
        return [
            Adopted(
                r["run_id"],
                r["epoch"],
                RELEASED if r["released"] else LEASE_EXPIRED,
                r["deaths"],
            )
            for r in rows
        ]

    async def next_expiry_s(self) -> float | None:
        """Seconds until the first lease of another replica runs out, unless it is renewed."""
        left_s: float | None = await fetchval(self._pool, _NEXT_EXPIRY, self._replica_id)
        return left_s

    async def undriven(self, driven: Collection[UUID]) -> list[tuple[UUID, int]]:
        """Unfinished runs of this replica beside ``driven``, and their epochs; at most 100."""
        rows = await fetch(self._pool, _UNDRIVEN, self._replica_id, list(driven))
        return [(row["run_id"], row["epoch"]) for row in rows]

    async def release(self, run_id: UUID, epoch: int) -> None:
        """Let go of one run, if it is still ours."""
        await self._execute(RELEASE, _RELEASE_ONE, run_id, epoch, self._replica_id, CHANNEL)

    async def release_all(self) -> None:
        """Let go of every unfinished run and of the lease, for others to take over at once.

        Raises:
            BosError: the database is away; others take over once the lease has run out.
        """
        for left in reversed(range(_RELEASE_TRIES)):
            try:
                await self._execute(RELEASE_ALL, _RELEASE, self._replica_id, CHANNEL)
                break
            except Unavailable as error:
                if error.reason != _DEADLOCK or not left:
                    raise
        await self._execute(FORGET_DEAD, _FORGET_DEAD)

    async def add_input(self, run_id: UUID, kind: str, event: LogEvent) -> None:
        """Leave an input for the run's owner; the first of its kind counts."""
        await self._execute(ADD_INPUT, _ADD_INPUT, run_id, kind, event.SerializeToString(), CHANNEL)

    async def inputs(self, run_ids: Collection[UUID]) -> list[tuple[UUID, bytes]]:
        """Inputs of these runs, oldest first: run and serialised LogEvent.

        They stay until the run ends, so none is lost on its way into the log; the run's loop drops
        what it has already recorded.
        """
        rows = await fetch(self._pool, _INPUTS, list(run_ids))
        return [(row["run_id"], row["payload"]) for row in rows]

    async def _execute(self, kind: str, sql: str, *arguments: object) -> None:
        async with acquire(self._pool) as connection:
            with _errors(), committing(self._observer, (kind,)):
                await connection.execute(sql, *arguments)


@contextmanager
def _errors() -> Iterator[None]:
    """As for every statement; who is the victim of a deadlock may simply try again."""
    try:
        with statement_errors():
            yield
    except asyncpg.DeadlockDetectedError as error:
        raise Unavailable(
            "The database is busy with the same runs.", reason=_DEADLOCK, retry_after_s=1.0
        ) from error
