"""Removing the streamed pieces of answers that are complete.

RunFinished holds the answer, so the AnswerDelta events before it are of no further use. Every other
event keeps its sequence, and the run's row names the ones that are gone: nobody's position moves,
and a log that lacks anything else is still seen to be broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bos_postgres.connections import Session

_COMPACT = """
WITH due AS (
    SELECT run_id FROM runs
    WHERE finished_at < now() - make_interval(secs => $1) AND compacted IS NULL
    ORDER BY finished_at
    LIMIT $2
    FOR NO KEY UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM run_events AS e USING due
    WHERE e.run_id = due.run_id AND e.kind = 'answer_delta'
    RETURNING e.run_id, e.sequence
), forgotten AS (
    -- Left behind only if a version that knows nothing of credentials ended the run.
    DELETE FROM run_secrets AS s USING due WHERE s.run_id = due.run_id
), settled AS (
    -- Left behind if they were written while the run was ending.
    DELETE FROM run_inputs AS i USING due WHERE i.run_id = due.run_id
), gaps AS (
    SELECT run_id, range_agg(int8range(sequence, sequence, '[]')) AS sequences, count(*) AS events
    FROM removed GROUP BY run_id
), marked AS (
    UPDATE runs AS r SET compacted = coalesce(gaps.sequences, '{}')
    FROM due LEFT JOIN gaps USING (run_id)
    WHERE r.run_id = due.run_id
)
SELECT (SELECT count(*) FROM due) AS runs, coalesce(sum(events), 0)::bigint AS events FROM gaps
"""


async def compact(session: Session, *, after_s: float, limit: int) -> tuple[int, int]:
    """Compact up to ``limit`` runs that ended at least ``after_s`` seconds ago, oldest first.

    Returns:
        Runs looked at, and events removed.
    """
    row = await session.fetchrow(_COMPACT, after_s, limit)
    return (0, 0) if row is None else (row["runs"], row["events"])
