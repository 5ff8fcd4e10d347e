"""The text of answers for those who follow on other replicas: one row per run, overwritten.

Only runs that somebody follows elsewhere have a row. It is lost with PostgreSQL and written again
with the next words; nobody's answer depends on it, that is in the log.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from bos_postgres import execute

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    import asyncpg

    AnswerOf = Callable[[UUID], tuple[int, int, int, str] | None]
    """Epoch, attempt, sequence of its AnswerStarted, and text of a run that is driven here."""

_ROUND_S = 0.1
# The whole text is written each time, so the longer it is the less often.
_CHARACTERS_PER_S = 256 * 1024
_MOST_CHARACTERS = 4 * 1024 * 1024
# A text of an earlier owner is void from the moment the epoch grows, so whoever reads compares that
# with the run's. Nothing of this is flushed to disk: the table is unlogged.
_WRITE = """
WITH written AS (
    INSERT INTO answers (run_id, epoch, attempt, sequence, text, characters)
    SELECT t.*, length(t.text)
    FROM unnest($1::uuid[], $2::bigint[], $3::integer[], $4::bigint[], $5::text[])
         AS t (run_id, epoch, attempt, sequence, text)
         JOIN runs AS r ON r.run_id = t.run_id AND r.epoch = t.epoch AND r.finished_at IS NULL
    ORDER BY t.run_id
    ON CONFLICT (run_id) DO UPDATE
    SET epoch = excluded.epoch, attempt = excluded.attempt, sequence = excluded.sequence,
        text = excluded.text, characters = excluded.characters
    WHERE answers.epoch <= excluded.epoch
    RETURNING run_id
)
SELECT pg_notify($6, 'events ' || run_id) FROM written
"""


class Answers:
    """Writes the texts of runs driven here, as far as they changed and are followed elsewhere.

    Args:
        pool: Connections whose search path is the gateway's schema.
        channel: Where to say that there is more.
    """

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._changed: dict[UUID, float] = {}
        self._written_until: dict[UUID, float] = {}
        self._waiting = asyncio.Event()

    def changed(self, run_id: UUID) -> None:
        """There is more of a text that is followed elsewhere."""
        self._changed.setdefault(run_id, self._written_until.get(run_id, 0.0))
        self._waiting.set()

    def forget(self, run_id: UUID) -> None:
        """The run is no longer driven here."""
        self._changed.pop(run_id, None)
        self._written_until.pop(run_id, None)

    async def write_for_ever(self, answer_of: AnswerOf) -> None:
        """Write what changed, all of it in one statement, at most ten times a second."""
        while True:
            await self._waiting.wait()
            await self.write(answer_of)
            if not self._changed:
                self._waiting.clear()
            await asyncio.sleep(_ROUND_S)

    async def write(self, answer_of: AnswerOf) -> None:
        """Write what changed and is due."""
        now = time.monotonic()
        rows: list[tuple[UUID, int, int, int, str]] = []
        room = _MOST_CHARACTERS
        for run_id in [run_id for run_id, due in self._changed.items() if due <= now]:
            if room <= 0:
                break
            del self._changed[run_id]
            epoch, attempt, sequence, text = answer_of(run_id) or (0, 0, 0, "")
            if text:
                # A text in PostgreSQL cannot hold U+0000; no offset moves.
                shown = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
                rows.append((run_id, epoch, attempt, sequence, shown))
                room -= len(text)
                self._written_until[run_id] = now + len(text) / _CHARACTERS_PER_S
        if rows:
            columns = (list(column) for column in zip(*rows, strict=True))
            await execute(self._pool, _WRITE, *columns, self._channel)
