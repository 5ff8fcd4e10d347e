"""Store of long-term memory: facts about users (PostgreSQL)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos.common.v1 import LongTermMemory
from bos_memory.facts import as_stored, from_stored, joined
from bos_postgres import acting_for, fetchrow, for_user
from bos_postgres.audit import By, deed, record

if TYPE_CHECKING:
    from datetime import datetime

    import asyncpg

    from bos_memory.facts import PersonalFacts

    Pool = asyncpg.Pool[asyncpg.Record]

_ATTEMPTS = 5

_OWN = for_user(
    "SELECT critical_facts, preferences, tainted FROM user_long_term_memory WHERE user_id = $1"
)
_FIND = """
SELECT critical_facts, preferences, tainted, version, corrected_at >= $2 AS corrected
FROM user_long_term_memory WHERE user_id = $1
"""
# Compare and swap: a change of the user since the read is not overwritten.
_REMEMBER = """
INSERT INTO user_long_term_memory AS m (user_id, critical_facts, preferences, tainted)
VALUES ($1, $2, $3, $4)
ON CONFLICT (user_id) DO UPDATE
SET critical_facts = excluded.critical_facts, preferences = excluded.preferences,
    tainted = excluded.tainted, version = m.version + 1, updated_at = now()
WHERE m.version = $5
"""
_REPLACE = """
INSERT INTO user_long_term_memory AS m (user_id, critical_facts, preferences, tainted, corrected_at)
VALUES ($1, $2, $3, $4, now())
ON CONFLICT (user_id) DO UPDATE
SET critical_facts = excluded.critical_facts, preferences = excluded.preferences,
    tainted = excluded.tainted, version = m.version + 1, updated_at = now(), corrected_at = now()
"""


@dataclass(frozen=True, slots=True)
class _Stored:
    memory: LongTermMemory
    version: int
    """Version of the row; 0 if there is none."""
    corrected: bool
    """Whether the user changed it since the given time."""


class Profiles:
    """Reads and writes long-term memory.

    Args:
        pool: Connections with the service's own role.
        readers: Connections with the role that sees the rows of one user (row security).
    """

    def __init__(self, pool: Pool, readers: Pool) -> None:
        self._pool = pool
        self._readers = readers

    async def get(self, user_id: str) -> LongTermMemory:
        """All facts about a user; empty if there are none."""
        row = await fetchrow(self._readers, _OWN, user_id, user_id)
        return LongTermMemory() if row is None else parsed(row)

    async def replace(self, user_id: str, memory: LongTermMemory, by: By) -> None:
        """Replace all facts; findings of earlier questions are no longer added."""
        action = "memory.changed" if memory != LongTermMemory() else "memory.deleted"
        async with acting_for(self._readers, user_id) as connection:
            await connection.execute(_REPLACE, user_id, *_dumped(memory))
            await record(connection, [by.entry(action, user_id)])

    async def known(self, user_id: str, ask_time: datetime) -> LongTermMemory | None:
        """Facts about a user; None if the user has changed them since ``ask_time``."""
        stored = await self._find(user_id, ask_time)
        return None if stored.corrected else stored.memory

    async def remember(
        self, user_id: str, found: PersonalFacts, ask_time: datetime, *, tainted: bool
    ) -> str:
        """Merge findings of a question asked at ``ask_time``; ``tainted``: possibly by others.

        Returns:
            ``remembered``; ``known`` if none of it is new; ``outdated`` if the user has changed or
            deleted facts since then, and nothing was added.
        """
        for _ in range(_ATTEMPTS):
            stored = await self._find(user_id, ask_time)
            if stored.corrected:
                return "outdated"
            memory = joined(stored.memory, found, tainted=tainted)
            if memory == stored.memory:
                return "known"
            given = (user_id, *_dumped(memory), stored.version)
            async with deed(self._pool) as connection:
                if await connection.execute(_REMEMBER, *given) == "INSERT 0 1":
                    entry = By("memory", "service").entry("memory.extended", user_id)
                    await record(connection, [entry])
                    return "remembered"
        return "outdated"  # lost the race on every attempt

    async def _find(self, user_id: str, ask_time: datetime) -> _Stored:
        row = await fetchrow(self._pool, _FIND, user_id, ask_time)
        if row is None:
            return _Stored(LongTermMemory(), 0, corrected=False)
        return _Stored(parsed(row), row["version"], corrected=bool(row["corrected"]))


def parsed(row: asyncpg.Record) -> LongTermMemory:
    """``critical_facts``, ``preferences`` and ``tainted``; null counts as empty."""
    memory = from_stored(
        json.loads(row["critical_facts"] or "{}"), json.loads(row["preferences"] or "{}")
    )
    memory.tainted = bool(row["tainted"])
    return memory


def _dumped(memory: LongTermMemory) -> tuple[str, str, bool]:
    facts, preferences = as_stored(memory)
    return json.dumps(facts), json.dumps(preferences), memory.tainted
