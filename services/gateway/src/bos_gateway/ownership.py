"""Who owns a run: one lease per replica, an epoch per run, adoption of what nobody owns.

All times are the database's, so replicas need not agree on the time. A run is taken by raising its
epoch; from that moment the log refuses whatever an earlier owner still tries to write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos.gateway.v1 import RUN_STATUS_WAITING_FOR_APPROVAL
from bos_postgres import acquire, statement_errors

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    import asyncpg

    from bos.runlog.v1 import LogEvent

_RENEW = """
INSERT INTO replicas (replica_id, lease_until) VALUES ($1, now() + make_interval(secs => $2))
ON CONFLICT (replica_id) DO UPDATE SET lease_until = excluded.lease_until
"""
_ADOPT = """
WITH free AS (
    SELECT r.run_id, r.replica_id IS NULL AS released
    FROM runs AS r LEFT JOIN replicas AS p ON p.replica_id = r.replica_id
    WHERE r.finished_at IS NULL AND r.status <> $2 AND r.replica_id IS DISTINCT FROM $1
          AND (p.replica_id IS NULL OR p.lease_until < now()) AND r.run_id <> ALL ($4)
    ORDER BY r.created_at
    LIMIT $3
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs AS r SET replica_id = $1, epoch = epoch + 1
FROM free WHERE r.run_id = free.run_id
RETURNING r.run_id, r.epoch, free.released
"""
_RELEASE = """
WITH gone AS (DELETE FROM replicas WHERE replica_id = $1)
UPDATE runs SET replica_id = NULL WHERE replica_id = $1 AND finished_at IS NULL
"""
_ADD_INPUT = """
INSERT INTO run_inputs (run_id, kind, payload)
SELECT run_id, $2, $3 FROM runs WHERE run_id = $1 AND finished_at IS NULL
ON CONFLICT DO NOTHING
"""
_RELEASE_ONE = """
UPDATE runs SET replica_id = NULL WHERE run_id = $1 AND epoch = $2 AND replica_id = $3
"""
_INPUTS = "SELECT run_id, payload FROM run_inputs WHERE run_id = ANY ($1) ORDER BY created_at"
_FORGET_DEAD = "DELETE FROM replicas WHERE lease_until < now() - interval '1 day'"


@dataclass(frozen=True, slots=True)
class Adopted:
    """A run that this replica has just taken over."""

    run_id: UUID
    epoch: int
    reason: str
    """``released`` by its last owner, or ``lease_expired``."""


class Ownership:
    """The statements of ownership for one replica.

    Args:
        pool: Connections whose search path is the gateway's schema.
        replica_id: This process.
        lease_s: Life of the lease in seconds.
    """

    def __init__(
        self, pool: asyncpg.Pool[asyncpg.Record], replica_id: UUID, lease_s: float
    ) -> None:
        self._pool = pool
        self._replica_id = replica_id
        self._lease_s = lease_s

    async def renew(self) -> None:
        """Take or prolong this replica's lease."""
        await self._execute(_RENEW, self._replica_id, self._lease_s)

    async def adopt(self, limit: int, except_for: Collection[UUID] = ()) -> list[Adopted]:
        """Take up to ``limit`` runs that nobody owns, oldest first."""
        async with acquire(self._pool) as connection:
            with statement_errors():
                rows = await connection.fetch(
                    _ADOPT,
                    self._replica_id,
                    RUN_STATUS_WAITING_FOR_APPROVAL,
                    limit,
                    list(except_for),
                )
        return [
            Adopted(r["run_id"], r["epoch"], "released" if r["released"] else "lease_expired")
            for r in rows
        ]

    async def release(self, run_id: UUID, epoch: int) -> None:
        """Let go of one run, if it is still ours."""
        await self._execute(_RELEASE_ONE, run_id, epoch, self._replica_id)

    async def release_all(self) -> None:
        """Let go of every unfinished run and of the lease, for others to take over at once."""
        await self._execute(_RELEASE, self._replica_id)
        await self._execute(_FORGET_DEAD)

    async def add_input(self, run_id: UUID, kind: str, event: LogEvent) -> None:
        """Leave an input for the run's owner; the first of its kind counts."""
        await self._execute(_ADD_INPUT, run_id, kind, event.SerializeToString())

    async def inputs(self, run_ids: Collection[UUID]) -> list[tuple[UUID, bytes]]:
        """Inputs of these runs, oldest first: run and serialised LogEvent.

        They stay until the run ends, so none is lost on its way into the log; the run's loop drops
        what it has already recorded.
        """
        async with acquire(self._pool) as connection:
            with statement_errors():
                rows = await connection.fetch(_INPUTS, list(run_ids))
        return [(row["run_id"], row["payload"]) for row in rows]

    async def _execute(self, sql: str, *arguments: object) -> None:
        async with acquire(self._pool) as connection:
            with statement_errors():
                await connection.execute(sql, *arguments)
