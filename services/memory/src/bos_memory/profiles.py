"""Store of long-term memory: facts about users (PostgreSQL)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bos.common.v1 import LongTermMemory
from bos_memory.facts import as_stored, from_stored, joined
from bos_memory.origins import after_correction, after_question, facts_of
from bos_postgres import acting_for, fetchrow, for_user
from bos_postgres.audit import By, deed, record

if TYPE_CHECKING:
    import asyncpg

    from bos.memory.v1 import Fact
    from bos_memory.facts import PersonalFacts
    from bos_memory.origins import Asked, Origins

    Pool = asyncpg.Pool[asyncpg.Record]

_ATTEMPTS = 5

_COLUMNS = "critical_facts, preferences, tainted, origins"
_OWN = for_user(f"SELECT {_COLUMNS} FROM user_long_term_memory WHERE user_id = $1")  # noqa: S608
_LOCK_OWN = f"SELECT {_COLUMNS} FROM user_long_term_memory WHERE user_id = $1 FOR UPDATE"  # noqa: S608
_FIND = f"""
SELECT {_COLUMNS}, version, corrected_at >= $2 AS corrected
FROM user_long_term_memory WHERE user_id = $1
"""  # noqa: S608
# Compare and swap: a change of the user since the read is not overwritten.
_REMEMBER = """
INSERT INTO user_long_term_memory AS m (user_id, critical_facts, preferences, tainted, origins)
VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id) DO UPDATE
SET critical_facts = excluded.critical_facts, preferences = excluded.preferences,
    tainted = excluded.tainted, origins = excluded.origins, version = m.version + 1,
    updated_at = now()
WHERE m.version = $6
"""
_REPLACE = """
INSERT INTO user_long_term_memory AS m
    (user_id, critical_facts, preferences, tainted, origins, corrected_at)
VALUES ($1, $2, $3, $4, $5, now())
ON CONFLICT (user_id) DO UPDATE
SET critical_facts = excluded.critical_facts, preferences = excluded.preferences,
    tainted = excluded.tainted, origins = excluded.origins, version = m.version + 1,
    updated_at = now(), corrected_at = now()
"""


@dataclass(frozen=True, slots=True)
class _Stored:
    memory: LongTermMemory
    version: int
    """Version of the row; 0 if there is none."""
    corrected: bool
    """Whether the user changed it since the given time."""
    origins: Origins = field(default_factory=dict)


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

    async def facts(self, user_id: str) -> list[Fact]:
        """All facts about a user, each with where it came from."""
        row = await fetchrow(self._readers, _OWN, user_id, user_id)
        return [] if row is None else facts_of(parsed(row), json.loads(row["origins"]))

    async def replace(self, user_id: str, memory: LongTermMemory, by: By) -> None:
        """Replace all facts; findings of earlier questions are no longer added."""
        action = "memory.changed" if memory != LongTermMemory() else "memory.deleted"
        async with acting_for(self._readers, user_id) as connection:
            row = await connection.fetchrow(_LOCK_OWN, user_id)
            known = LongTermMemory() if row is None else parsed(row)
            before = {} if row is None else json.loads(row["origins"])
            origins = after_correction(known, memory, before, datetime.now(UTC))
            await connection.execute(_REPLACE, user_id, *_dumped(memory, origins))
            await record(connection, [by.entry(action, user_id)])

    async def known(self, user_id: str, ask_time: datetime) -> LongTermMemory | None:
        """Facts about a user; None if the user has changed them since ``ask_time``."""
        stored = await self._find(user_id, ask_time)
        return None if stored.corrected else stored.memory

    async def remember(self, user_id: str, found: PersonalFacts, asked: Asked) -> str:
        """Merge findings of a question.

        Returns:
            ``remembered``; ``known`` if none of it is new; ``outdated`` if the user has changed or
            deleted facts since then, and nothing was added.
        """
        for _ in range(_ATTEMPTS):
            stored = await self._find(user_id, asked.at)
            if stored.corrected:
                return "outdated"
            memory = joined(stored.memory, found, tainted=asked.tainted)
            if memory == stored.memory:
                return "known"
            origins = after_question(stored.memory, memory, stored.origins, asked)
            given = (user_id, *_dumped(memory, origins), stored.version)
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
        origins = json.loads(row["origins"])
        return _Stored(parsed(row), row["version"], bool(row["corrected"]), origins)


def parsed(row: asyncpg.Record) -> LongTermMemory:
    """``critical_facts``, ``preferences`` and ``tainted``; null counts as empty."""
    memory = from_stored(
        json.loads(row["critical_facts"] or "{}"), json.loads(row["preferences"] or "{}")
    )
    memory.tainted = bool(row["tainted"])
    return memory


def _dumped(memory: LongTermMemory, origins: Origins) -> tuple[str, str, bool, str]:
    facts, preferences = as_stored(memory)
    return json.dumps(facts), json.dumps(preferences), memory.tainted, json.dumps(origins)
