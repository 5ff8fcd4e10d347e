"""Rows of runs and replicas as tests of ownership need them, and what became of them."""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

from bos_gateway.ownership.owners import Adopted, Ownership

Pool = Any
"""Of asyncpg: connections to the gateways' schema."""
LEASE_S = 60.0


async def insert_run(pool: Pool, owner: UUID | None, run_id: UUID | None = None) -> UUID:
    """A run with its first event, owned or released."""
    run_id = run_id or uuid4()
    await pool.execute(
        "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, "
        "replica_id) VALUES ($1, 'u', $2, '', '?', 1, $3)",
        run_id,
        str(run_id),
        owner,
    )
    await insert_event(pool, run_id, "run_accepted")
    return run_id


async def insert_event(pool: Pool, run_id: UUID, kind: str) -> None:
    """One more event at the end of a log."""
    await pool.execute(
        "INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload, "
        "created_at) SELECT $1, count(*) + 1, $2, 1, $3, 1, '', now() FROM run_events "
        "WHERE run_id = $1",
        run_id,
        uuid4(),
        kind,
    )


async def expire(pool: Pool, replica_id: UUID) -> None:
    await pool.execute(
        "UPDATE replicas SET lease_until = now() - interval '1 min' WHERE replica_id = $1",
        replica_id,
    )


async def adopt(adopter: Ownership, room: int = 9, *suspects: UUID) -> list[Adopted]:
    """What a look of a replica comes to that has judged the others for long."""
    until, _ = await adopter.take()
    await adopter.bury(until.replace(year=until.year + 1))
    return await adopter.adopt(room, suspects)


async def make_due(pool: Pool) -> None:
    await pool.execute("UPDATE runs SET retry_at = now() WHERE retry_at <> 'infinity'")


def owner_of(pool: Pool, monotonic: Callable[[], float] = time.monotonic) -> Ownership:
    return Ownership(pool, uuid4(), LEASE_S, monotonic=monotonic)
