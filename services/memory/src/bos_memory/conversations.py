"""Store of conversations, messages and summaries (PostgreSQL)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from bos.common.v1 import ConversationMessage, MessageRole
from bos.memory.v1 import Conversation, Message, OpenTurnResponse
from bos_chassis.paging import after_ordinal, after_time, ordinal_token, time_token, word_patterns
from bos_errors import NotFound
from bos_memory.profiles import parsed
from bos_memory.texts import cut, storable, title_of
from bos_postgres import acquire, acting_for, execute, fetch, for_user, statement_errors
from bos_postgres.audit import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg
    from google.protobuf.timestamp_pb2 import Timestamp

    from bos.memory.v1 import ListConversationsRequest, ListMessagesRequest, RecordTurnRequest
    from bos_postgres.audit import By

    Pool = asyncpg.Pool[asyncpg.Record]

SUMMARY_TURNS = 3
"""Number of turns per summary."""
_MAX_SHOWN_CHARS = 2_000
_DEFAULT_PAGE = 50
_ROLES = {
    "user": MessageRole.MESSAGE_ROLE_USER,
    "assistant": MessageRole.MESSAGE_ROLE_ASSISTANT,
}
# Runs wait for an approval for 30 days at most; after that no late turn can arrive.
_TOMBSTONES_KEPT = "60 days"

_COLUMNS = (
    "c.conversation_key, c.conversation_id, c.title, c.turns, c.tainted, c.created_at, c.updated_at"
)
_LATEST_SUMMARY = """
LEFT JOIN LATERAL (
    SELECT summary_text, turns_covered, s.tainted AS summary_tainted, s.created_at AS summarised_at
    FROM conversation_summaries AS s
    WHERE s.conversation_key = c.conversation_key ORDER BY turns_covered DESC LIMIT 1
) AS s ON true
"""
_OPEN_TURN = for_user(f"""
SELECT m.critical_facts, m.preferences, m.tainted, s.summary_text, s.summary_tainted,
       s.summarised_at, t.said
FROM (SELECT 1) AS one
LEFT JOIN user_long_term_memory AS m ON m.user_id = $1
LEFT JOIN conversations AS c ON c.user_id = $1 AND c.conversation_id = $2
{_LATEST_SUMMARY}
LEFT JOIN LATERAL (
    SELECT json_agg(json_build_array(role, left(content, $4), extract(epoch FROM created_at),
                                     run_id, tainted) ORDER BY ordinal) AS said
    FROM (SELECT role, content, created_at, run_id, tainted, ordinal FROM messages
          WHERE conversation_key = c.conversation_key ORDER BY ordinal DESC LIMIT $3) AS last
) AS t ON true
""")  # noqa: S608  our own text
_LIST = for_user(f"""
SELECT {_COLUMNS} FROM conversations AS c
WHERE user_id = $1 AND (updated_at, conversation_key) < ($2, $3)
ORDER BY updated_at DESC, conversation_key DESC LIMIT $4
""")  # noqa: S608
# Words are looked for in one user's rows, which the index on messages finds by conversation.
_SEARCH = for_user(f"""
SELECT {_COLUMNS} FROM conversations AS c
WHERE user_id = $1 AND (updated_at, conversation_key) < ($2, $3)
  AND (title ILIKE ALL ($5::text[]) OR EXISTS (
        SELECT FROM messages AS m
        WHERE m.conversation_key = c.conversation_key AND m.content ILIKE ALL ($5::text[])))
ORDER BY updated_at DESC, conversation_key DESC LIMIT $4
""")  # noqa: S608
_GET = for_user(f"""
SELECT {_COLUMNS}, s.summary_text, s.turns_covered FROM conversations AS c
{_LATEST_SUMMARY}
WHERE c.user_id = $1 AND c.conversation_id = $2
""")  # noqa: S608
_MESSAGES = for_user("""
SELECT message_id, run_id, role, content, tainted, ordinal, created_at FROM messages
WHERE conversation_key = $1 AND ordinal > $2 ORDER BY ordinal LIMIT $3
""")
_RENAME = "UPDATE conversations SET title = $3 WHERE user_id = $1 AND conversation_id = $2"
# Serialises recording a turn with deleting its conversation.
_LOCK = "SELECT pg_advisory_xact_lock(20261123, hashtext($1 || ' ' || $2))"
_KEY = "SELECT conversation_key FROM conversations WHERE user_id = $1 AND conversation_id = $2"
_DELETE = """
DELETE FROM conversations WHERE user_id = $1 AND conversation_id = $2 RETURNING conversation_key
"""
_BURY = """
INSERT INTO deleted_conversations (user_id, conversation_id, deleted_at) VALUES ($1, $2, now())
ON CONFLICT (user_id, conversation_id) DO UPDATE SET deleted_at = now()
"""
_FORGET_GRAVES = f"""
DELETE FROM deleted_conversations
WHERE user_id = $1 AND deleted_at < now() - interval '{_TOMBSTONES_KEPT}'
"""  # noqa: S608
_STALE = """
SELECT EXISTS (SELECT FROM messages WHERE run_id = $3)
    OR EXISTS (SELECT FROM deleted_conversations
               WHERE user_id = $1 AND conversation_id = $2 AND deleted_at >= $4)
"""
_BEGIN_OR_GO_ON = """
INSERT INTO conversations AS c
    (conversation_key, user_id, conversation_id, title, turns, created_at, updated_at, tainted)
VALUES ($1, $2, $3, $4, 1, $5, $6, $7)
ON CONFLICT (user_id, conversation_id) DO UPDATE
SET turns = c.turns + 1, tainted = c.tainted OR excluded.tainted,
    updated_at = greatest(c.updated_at, excluded.updated_at)
RETURNING conversation_key, turns
"""
_ADD_MESSAGES = """
INSERT INTO messages (message_id, conversation_key, user_id, run_id, role, content, turn, ordinal,
                      created_at, tainted)
SELECT t.message_id, $1, $2, $3, t.role, t.content, $4, t.ordinal, t.created_at, $10
FROM unnest($5::uuid[], $6::text[], $7::text[], $8::integer[], $9::timestamptz[])
    AS t (message_id, role, content, ordinal, created_at)
"""
_COVERED = """
SELECT summary_text, turns_covered, tainted FROM conversation_summaries
WHERE conversation_key = $1 ORDER BY turns_covered DESC LIMIT 1
"""
_UNCOVERED = """
SELECT turn, role, content, tainted FROM messages
WHERE conversation_key = $1 AND turn > $2 AND turn <= $3 ORDER BY ordinal
"""
# No summary for a conversation that was deleted meanwhile.
_ADD_SUMMARY = """
INSERT INTO conversation_summaries
    (summary_id, conversation_key, user_id, summary_text, turns_covered, tainted)
SELECT $2, conversation_key, user_id, $3, $4, $5 FROM conversations WHERE conversation_key = $1
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A stored turn: key and number of turns of its conversation."""

    conversation_key: UUID
    turns: int
    """Number of turns of the conversation, including this one."""


@dataclass(frozen=True, slots=True)
class ToSummarise:
    """A summary, and the turns that are not in it yet."""

    former: str
    turns: list[tuple[str, str]]
    """Questions with their answers."""
    tainted: bool
    """Whether the summary or one of these turns is tainted by content of others."""


class Conversations:
    """Reads and writes conversations.

    Args:
        pool: Connections with the service's own role.
        readers: Connections with the role that sees the rows of one user (row security).
    """

    def __init__(self, pool: Pool, readers: Pool) -> None:
        self._pool = pool
        self._readers = readers

    async def open_turn(
        self, user_id: str, conversation_id: str, max_messages: int
    ) -> OpenTurnResponse:
        """Summary, messages and facts for a question, in one statement."""
        (row,) = await self._read(
            _OPEN_TURN, user_id, user_id, conversation_id, max_messages, _MAX_SHOWN_CHARS + 1
        )
        said = [_said(*each) for each in json.loads(row["said"] or "[]")]
        if row["summary_text"] is not None and max_messages > 0:
            summary = ConversationMessage(
                role=MessageRole.MESSAGE_ROLE_SUMMARY,
                content=row["summary_text"],
                tainted=row["summary_tainted"],
            )
            summary.create_time.FromDatetime(row["summarised_at"])
            room = max_messages - 1
            said = [summary, *(said[-room:] if room else ())]
        return OpenTurnResponse(conversation_history=said, long_term_memory=parsed(row))

    async def get(self, conversation_id: str, user_id: str) -> Conversation:
        """One of the user's conversations with its summary.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        row = await self._find(conversation_id, user_id)
        found = _conversation(row)
        found.summary = row["summary_text"] or ""
        found.turns_covered = row["turns_covered"] or 0
        return found

    async def messages(
        self, request: ListMessagesRequest, user_id: str
    ) -> tuple[list[Message], str]:
        """A page of the conversation's messages, oldest first, and the token of the next page.

        Raises:
            NotFound: there is no such conversation, or it belongs to another user.
            InvalidArgument: the page token is invalid.
        """
        size = request.page_size or _DEFAULT_PAGE
        after = after_ordinal(request.page_token)
        key = (await self._find(request.conversation_id, user_id))["conversation_key"]
        rows = await self._read(_MESSAGES, user_id, key, after, size + 1)
        token = ordinal_token(rows[size - 1]["ordinal"]) if len(rows) > size else ""
        return [_message(row) for row in rows[:size]], token

    async def rename(self, conversation_id: str, title: str, user_id: str, by: By) -> None:
        """Change the title of one of the user's conversations.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        _storable_id(conversation_id)
        async with acting_for(self._readers, user_id) as connection:
            if await connection.execute(_RENAME, user_id, conversation_id, title) == "UPDATE 0":
                raise _not_found(conversation_id)
            key = await connection.fetchval(_KEY, user_id, conversation_id)
            await record(connection, [by.entry("conversation.renamed", str(key))])

    async def delete(self, conversation_id: str, user_id: str, by: By) -> None:
        """Delete one of the user's conversations permanently, with all its messages and summaries.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        _storable_id(conversation_id)
        async with acting_for(self._readers, user_id) as connection:
            await connection.execute(_LOCK, user_id, conversation_id)
            key = await connection.fetchval(_DELETE, user_id, conversation_id)
            if key is None:
                raise _not_found(conversation_id)
            # By our own key: the conversation id is chosen by the client.
            await record(connection, [by.entry("conversation.deleted", str(key))])
            await connection.execute(_BURY, user_id, conversation_id)
            await connection.execute(_FORGET_GRAVES, user_id)

    async def record(self, turn: RecordTurnRequest) -> Recorded | None:
        """Store a turn; None if it is stored already or its conversation was deleted meanwhile."""
        asked, answered = _time(turn.ask_time), _time(turn.answer_time)
        conversation = (turn.user_id, turn.conversation_id)
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                async with connection.transaction():
                    await connection.execute(_LOCK, *conversation)
                    if await connection.fetchval(_STALE, *conversation, turn.run_id, asked):
                        return None
                    row = await connection.fetchrow(
                        _BEGIN_OR_GO_ON,
                        uuid4(),
                        *conversation,
                        title_of(turn.question),
                        asked,
                        answered,
                        turn.tainted,
                    )
                    assert row is not None
                    key, turns = row["conversation_key"], row["turns"]
                    said = [("user", turn.question, asked), ("assistant", turn.answer, answered)]
                    said = [each for each in said if each[1]]
                    await connection.execute(
                        _ADD_MESSAGES,
                        key,
                        turn.user_id,
                        turn.run_id,
                        turns,
                        [uuid4() for _ in said],
                        [role for role, _, _ in said],
                        [storable(content) for _, content, _ in said],
                        [2 * turns + place for place in range(len(said))],
                        [at for _, _, at in said],
                        turn.tainted,
                    )
        return Recorded(key, turns)

    async def to_summarise(self, conversation_key: UUID, up_to: int) -> ToSummarise | None:
        """Turns to add for a summary of the first ``up_to`` turns; None if that summary exists."""
        async with acquire(self._pool) as connection:
            with statement_errors(connection):
                covered = await connection.fetchrow(_COVERED, conversation_key)
                former, first, tainted = ("", 0, False) if covered is None else covered
                if first >= up_to:
                    return None
                rows = await connection.fetch(_UNCOVERED, conversation_key, first, up_to)
        turns: dict[int, dict[str, str]] = {}
        for row in rows:
            turns.setdefault(row["turn"], {})[row["role"]] = row["content"]
        said = [(each.get("user", ""), each.get("assistant", "")) for each in turns.values()]
        tainted = tainted or any(row["tainted"] for row in rows)
        return ToSummarise(former, said, tainted) if said else None

    async def add_summary(
        self, conversation_key: UUID, text: str, turns_covered: int, *, tainted: bool
    ) -> None:
        """Store a summary, unless one exists or the conversation was deleted meanwhile."""
        content = storable(text)
        await execute(
            self._pool, _ADD_SUMMARY, conversation_key, uuid4(), content, turns_covered, tainted
        )

    async def list(
        self, request: ListConversationsRequest, user_id: str
    ) -> tuple[list[Conversation], str]:
        """A page of the user's conversations, most recently used first, and the next page token.

        Raises:
            InvalidArgument: the page token is invalid, or the query has too many words.
        """
        size = request.page_size or _DEFAULT_PAGE
        before = after_time(request.page_token)
        given = (user_id, *before, size + 1)
        if patterns := word_patterns(request.query):
            rows = await self._read(_SEARCH, user_id, *given, patterns)
        else:
            rows = await self._read(_LIST, user_id, *given)
        last = rows[size - 1] if len(rows) > size else None
        token = time_token(last["updated_at"], last["conversation_key"]) if last else ""
        return [_conversation(row) for row in rows[:size]], token

    async def _find(self, conversation_id: str, user_id: str) -> asyncpg.Record:
        _storable_id(conversation_id)
        rows = await self._read(_GET, user_id, user_id, conversation_id)
        if not rows:
            raise _not_found(conversation_id)
        return rows[0]

    async def _read(self, query: str, *arguments: object) -> Sequence[asyncpg.Record]:
        return await fetch(self._readers, query, *arguments)


def _storable_id(conversation_id: str) -> None:
    if "\0" in conversation_id:  # invalid for PostgreSQL, which would raise an error
        raise _not_found("")


def _not_found(conversation_id: str) -> NotFound:
    return NotFound("There is no such conversation.", metadata={"conversation_id": conversation_id})


def _said(role: str, content: str, at: float, run_id: str, tainted: bool) -> ConversationMessage:
    message = ConversationMessage(
        role=_ROLES[role], content=cut(content, _MAX_SHOWN_CHARS), run_id=run_id, tainted=tainted
    )
    message.create_time.FromDatetime(datetime.fromtimestamp(at, UTC))
    return message


def _conversation(row: asyncpg.Record) -> Conversation:
    found = Conversation(
        conversation_id=row["conversation_id"],
        title=row["title"],
        turn_count=row["turns"],
        tainted=row["tainted"],
    )
    found.create_time.FromDatetime(row["created_at"])
    found.update_time.FromDatetime(row["updated_at"])
    return found


def _message(row: asyncpg.Record) -> Message:
    message = Message(
        message_id=str(row["message_id"]),
        run_id=row["run_id"],
        role=_ROLES[row["role"]],
        content=row["content"],
        tainted=row["tainted"],
    )
    message.create_time.FromDatetime(row["created_at"])
    return message


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
