"""Deletion and export of an account's data in memory, called by identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos.account.v1 import (
    AccountDataServiceServicer,
    EraseAccountDataResponse,
    ExportAccountDataResponse,
)
from bos_chassis.auth.account_data import ERASE, EXPORT, account_to, parts
from bos_postgres import fetch, fetchrow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import asyncpg

    from bos.account.v1 import EraseAccountDataRequest, ExportAccountDataRequest

_BATCH = 50
# Messages and summaries are deleted with their conversations. The other rows are deleted last, as
# they keep late turns from being stored.
_ERASE = """
WITH talks AS (
    DELETE FROM conversations WHERE conversation_key IN (
        SELECT conversation_key FROM conversations WHERE user_id = $1 LIMIT $2)
    RETURNING 1
), more AS (
    SELECT count(*) > $2 AS remain
    FROM (SELECT FROM conversations WHERE user_id = $1 LIMIT $2 + 1) AS found
), graves AS (
    DELETE FROM deleted_conversations WHERE user_id = $1 AND NOT (SELECT remain FROM more)
), known AS (
    DELETE FROM user_long_term_memory WHERE user_id = $1 AND NOT (SELECT remain FROM more)
    RETURNING 1
)
SELECT (SELECT count(*) FROM talks) AS conversations, (SELECT count(*) FROM known) AS profiles,
       NOT (SELECT remain FROM more) AS done
"""
_PROFILE = """
SELECT json_build_object('critical_facts', critical_facts, 'preferences', preferences,
                         'origins', origins, 'updated_at', updated_at)::text AS content
FROM user_long_term_memory WHERE user_id = $1
"""
_CONVERSATIONS = """
SELECT conversation_key,
       (to_jsonb(c) - 'conversation_key' - 'user_id' || jsonb_build_object('summaries', (
           SELECT coalesce(jsonb_agg(s.summary_text ORDER BY turns_covered), '[]')
           FROM conversation_summaries AS s WHERE s.conversation_key = c.conversation_key
       )))::text AS content
FROM conversations AS c
WHERE user_id = $1 AND ($2::uuid IS NULL OR conversation_key > $2)
ORDER BY conversation_key LIMIT 50
"""
_MESSAGES = """
SELECT ordinal, (to_jsonb(m) - 'conversation_key' - 'user_id')::text AS content
FROM messages AS m WHERE conversation_key = $1 AND ordinal > $2 ORDER BY ordinal LIMIT 50
"""
_BEFORE_ALL = -1


@dataclass(frozen=True, slots=True)
class AccountDataServicer(AccountDataServiceServicer):
    """Implements ``bos.account.v1.AccountDataService``."""

    pool: asyncpg.Pool[asyncpg.Record]

    async def EraseAccountData(
        self, request: EraseAccountDataRequest, context: Any
    ) -> EraseAccountDataResponse:
        """Delete a batch of conversations; with the last batch all other rows."""
        row = await fetchrow(self.pool, _ERASE, account_to(ERASE), _BATCH)
        assert row is not None
        erased = {kind: row[kind] for kind in ("conversations", "profiles")}
        return EraseAccountDataResponse(done=row["done"], erased=erased)

    async def ExportAccountData(
        self, request: ExportAccountDataRequest, context: Any
    ) -> AsyncIterator[ExportAccountDataResponse]:
        """Long-term memory and all conversations with messages, one JSON object per line."""
        user_id = account_to(EXPORT)
        for row in await fetch(self.pool, _PROFILE, user_id):
            for part in _parts("memory.json", row["content"]):
                yield part
        after = None
        while page := await fetch(self.pool, _CONVERSATIONS, user_id, after):
            for row in page:
                path = f"conversations/{row['conversation_key']}.jsonl"
                for part in _parts(path, row["content"]):
                    yield part
                async for line in self._messages(row["conversation_key"]):
                    for part in _parts(path, line):
                        yield part
            after = page[-1]["conversation_key"]

    async def _messages(self, conversation_key: object) -> AsyncIterator[str]:
        after = _BEFORE_ALL
        while page := await fetch(self.pool, _MESSAGES, conversation_key, after):
            for row in page:
                yield row["content"]
            after = page[-1]["ordinal"]


def _parts(path: str, line: str) -> Iterator[ExportAccountDataResponse]:
    for part in parts(line.encode() + b"\n"):
        yield ExportAccountDataResponse(path=path, content=part)
