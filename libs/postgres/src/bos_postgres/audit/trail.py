"""The sealed trail in PostgreSQL: giving entries their place, reading them, dropping old ones."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING

from attrs import evolve

from bos_postgres.audit.chain import Checkpoint, SealedEntry, next_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_postgres.connections import Session

_BATCH = 500
_COLUMNS = "occurred_at, actor, actor_kind, action, target, outcome, address, details"
# One at a time: two that seal would give one place twice. Not a lock of the session, which would
# outlive a statement that was given up.
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('bos.audit.' || current_schema(), 0))"
_HEAD = """
SELECT position, hash FROM (
    (SELECT position, hash FROM audit_trail ORDER BY position DESC LIMIT 1)
    UNION ALL
    SELECT position, hash FROM audit_checkpoint
) AS ends ORDER BY position DESC LIMIT 1
"""
_TAKE = f"""
WITH taken AS (
    DELETE FROM audit_pending
    WHERE entry_id IN (SELECT entry_id FROM audit_pending ORDER BY entry_id LIMIT $1)
    RETURNING *
)
SELECT {_COLUMNS} FROM taken ORDER BY entry_id
"""  # noqa: S608
_KEEP = f"""
INSERT INTO audit_trail (position, {_COLUMNS}, hash)
SELECT * FROM unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::text[], $5::text[],
                     $6::text[], $7::text[], $8::text[], $9::jsonb[], $10::bytea[])
"""  # noqa: S608
_READ = f"""
SELECT position, {_COLUMNS}, hash FROM audit_trail
WHERE position > $1 ORDER BY position LIMIT $2
"""  # noqa: S608
# The prefix before the first row that is young enough: clocks of replicas differ, so an older row
# may stand behind it, and stays.
_OLD_END = """
SELECT position, hash FROM audit_trail
WHERE position < coalesce(
    (SELECT min(position) FROM audit_trail WHERE occurred_at >= $1),
    (SELECT max(position) + 1 FROM audit_trail))
ORDER BY position DESC LIMIT 1
"""
_MOVE_CHECKPOINT = """
UPDATE audit_checkpoint SET position = $1, hash = $2, created_at = clock_timestamp()
WHERE position < $1
"""
_DROP = """
DELETE FROM audit_trail WHERE position IN (
    SELECT position FROM audit_trail WHERE position <= (SELECT position FROM audit_checkpoint)
    ORDER BY position LIMIT $1)
"""


async def seal(session: Session) -> Checkpoint | None:
    """Give pending entries, at most 500, their place in the trail.

    Returns:
        The end of the trail if entries were sealed, else None: nothing was pending, or another
        replica is sealing.
    """
    async with session.transaction():
        if not await session.fetchval(_ALONE):
            return None
        rows = await session.fetch(_TAKE, _BATCH)
        if not rows:
            return None
        head = await session.fetchrow(_HEAD)
        assert head is not None  # there is a checkpoint at least
        position, before = head["position"], head["hash"]
        sealed = []
        for row in rows:
            position += 1
            entry = _entry({**row, "position": position, "hash": b""})
            before = next_hash(before, entry)
            sealed.append(evolve(entry, hash=before))
        columns = [
            (
                *(e.position, e.occurred_at, e.actor, e.actor_kind, e.action, e.target, e.outcome),
                *(e.address, json.dumps(e.details), e.hash),
            )
            for e in sealed
        ]
        await session.execute(_KEEP, *(list(column) for column in zip(*columns, strict=True)))
        return Checkpoint(position, before)


async def read(session: Session, after: int, limit: int = _BATCH) -> Sequence[SealedEntry]:
    """At most ``limit`` rows behind position ``after``, in order."""
    return [_entry(dict(row)) for row in await session.fetch(_READ, after, limit)]


async def checkpoint(session: Session) -> Checkpoint:
    """Beginning of the trail, after what was dropped."""
    row = await session.fetchrow("SELECT position, hash FROM audit_checkpoint")
    assert row is not None
    return Checkpoint(row["position"], row["hash"])


async def drop_older(session: Session, than: datetime) -> int:
    """Drop the rows up to the first one that is younger than ``than``; returns how many.

    The checkpoint keeps the hash of the last one, from which the chain goes on. Rows go in batches
    of 500, in transactions of their own: what is broken off is gone on with next time.
    """
    end = await session.fetchrow(_OLD_END, than)
    if end is not None:
        await session.execute(_MOVE_CHECKPOINT, end["position"], end["hash"])
    dropped = 0
    while True:
        count = int((await session.execute(_DROP, _BATCH)).split()[-1])
        dropped += count
        if count < _BATCH:
            return dropped


def _entry(row: Mapping[str, object]) -> SealedEntry:
    values = dict(row)
    values["details"] = json.loads(str(values["details"]))
    return SealedEntry(**values)  # type: ignore[arg-type]  # the columns are its fields
