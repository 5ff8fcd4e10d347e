"""Verified queries of users and of groups: stored, listed, deleted, and found by likeness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid4

from attrs import define, frozen

from bos.agent.v1 import QueryExample
from bos.common.v1 import DatabaseQuery
from bos.gateway.v1 import VerifiedQuery
from bos_chassis.paging import after_time, time_token
from bos_errors import NotFound, PermissionDenied, ResourceExhausted
from bos_gateway.permits.approvers import SEPARATOR
from bos_gateway.verified_queries.likeness import words_of
from bos_postgres import fetch, for_user
from bos_postgres.audit import deed, record

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import asyncpg

    from bos_gateway.metrics import GatewayMetrics
    from bos_postgres.audit import By

    Pool = asyncpg.Pool[asyncpg.Record]

MAX_EXAMPLES: Final = 12
"""Found for one step: more than an agent shows its model, which drops those that do not apply."""
_DEFAULT_PAGE: Final = 50
_MEMBER_OF: Final = "bos.member_of"
_SHOWN: Final = (
    "query_id, user_id, group_name, run_id, step_id, question, database, dialect, default_schema, "
    "sql, tables, corrected, created_at"
)
_READABLE: Final = "(user_id = $1 OR group_name <> '' AND group_name = ANY ($2))"
# A concurrent insert for the same readers waits, and then counts this one.
_LOCK: Final = "SELECT pg_advisory_xact_lock(20261128, hashtext($1 || chr(31) || $2))"
_COUNT: Final = """
SELECT count(*) FROM verified_queries
WHERE group_name = $2 AND ($2 <> '' OR user_id = $1)
      AND (user_id, run_id, step_id) IS DISTINCT FROM ($1, $3::uuid, $4)
"""
_STORE: Final = f"""
INSERT INTO verified_queries AS v
    (query_id, user_id, group_name, run_id, step_id, question, database, dialect, default_schema,
     sql, tables, words, corrected)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (user_id, run_id, step_id, group_name) DO UPDATE
SET question = excluded.question, database = excluded.database, dialect = excluded.dialect,
    default_schema = excluded.default_schema, sql = excluded.sql, tables = excluded.tables,
    words = excluded.words, corrected = excluded.corrected, created_at = now()
RETURNING {_SHOWN}
"""  # noqa: S608  our own text
_LIST: Final = for_user(
    f"""
SELECT {_SHOWN} FROM verified_queries
WHERE {_READABLE} AND (created_at, query_id) < ($3, $4) AND ($6::uuid IS NULL OR run_id = $6)
ORDER BY created_at DESC, query_id DESC LIMIT $5
""",  # noqa: S608  our own text
    _MEMBER_OF,
)
_ALL: Final = for_user(
    f"SELECT {_SHOWN} FROM verified_queries WHERE user_id = $1 ORDER BY created_at, query_id"  # noqa: S608
)
_ONE: Final = for_user(
    f"SELECT {_SHOWN} FROM verified_queries WHERE {_READABLE} AND query_id = $3",  # noqa: S608
    _MEMBER_OF,
)
_DELETE: Final = "DELETE FROM verified_queries WHERE query_id = $1 RETURNING 1"
# By the share of words that two questions have in common (Dice's coefficient), then the newest.
_SIMILAR: Final = for_user(
    f"""
SELECT query_id, user_id, question, database, dialect, default_schema, sql, tables
FROM verified_queries
CROSS JOIN LATERAL (
    SELECT count(*) AS common FROM unnest(words) AS word WHERE word = ANY ($3)
) AS compared
WHERE {_READABLE} AND words && $3 AND ($4 = '' OR database = $4)
ORDER BY common::float8 / (cardinality(words) + cardinality($3::text[])) DESC, created_at DESC,
         query_id
LIMIT $5
""",  # noqa: S608  our own text
    _MEMBER_OF,
)


@frozen
class Reader:
    """Reader of verified queries: a user, with the groups of this moment or of a run."""

    user_id: str
    groups: Collection[str] = ()

    @property
    def arguments(self) -> tuple[str, str, str, list[str]]:
        """First arguments of the statements: for row security, then for their own conditions."""
        groups = sorted(self.groups)
        member_of = SEPARATOR.join(f"group:{name}" for name in groups)
        return self.user_id, member_of, self.user_id, groups


@define(eq=False)
class VerifiedQueries:
    """Reads and changes verified queries; what a user may not read is never found.

    Raises of all methods:
        Unavailable: the database is away.
    """

    _pool: Pool
    _readers: Pool
    """Connections of the role that sees the rows of one user and its groups."""
    _metrics: GatewayMetrics
    _limit: int
    """Verified queries of one user alone, and of one group."""

    async def store(self, made: VerifiedQuery, user_id: str, by: By) -> VerifiedQuery:
        """Store a verified query, in place of an earlier one of the same step and readers.

        Raises:
            ResourceExhausted: its user, or its group, is at its limit.
        """
        run_id, query = UUID(made.run_id), made.query
        async with deed(self._pool) as session:
            await session.execute(_LOCK, "" if made.group else user_id, made.group)
            count = await session.fetchval(_COUNT, user_id, made.group, run_id, made.step_id)
            if count >= self._limit:
                whose = f'The group "{made.group}" has' if made.group else "You have"
                raise ResourceExhausted(
                    f"{whose} {self._limit} verified queries, the most allowed "
                    "(BOS_GATEWAY_MAX_VERIFIED_QUERIES); delete one.",
                    reason="VERIFIED_QUERY_LIMIT",
                )
            row = await session.fetchrow(
                _STORE,
                uuid4(),
                user_id,
                made.group,
                run_id,
                made.step_id,
                made.question,
                query.database,
                query.dialect,
                query.default_schema,
                query.sql,
                list(query.tables),
                words_of(made.question),
                made.corrected,
            )
            assert row is not None
            entry = by.entry(
                "query.verified",
                str(row["query_id"]),
                run=made.run_id,
                group=made.group,
                corrected="yes" if made.corrected else "no",
            )
            await record(session, [entry])
        self._metrics.verified_queries.labels("shared" if made.group else "verified").inc()
        return _verified(row, user_id)

    async def all(self, user_id: str) -> list[VerifiedQuery]:
        """All that a user has verified, shared or not, oldest first."""
        rows = await fetch(self._readers, _ALL, user_id, user_id)
        return [_verified(row, user_id) for row in rows]

    async def list(
        self, page_size: int, page_token: str, reader: Reader, *, run_id: UUID | None = None
    ) -> tuple[list[VerifiedQuery], str]:
        """A page of what the reader may read, newest first, and the token of the next page.

        With ``run_id`` only what was made from that run.

        Raises:
            InvalidArgument: the page token is not one of ours.
        """
        before, last_id = after_time(page_token)
        size = page_size or _DEFAULT_PAGE
        page = (*reader.arguments, before, last_id, size + 1, run_id)
        rows = await fetch(self._readers, _LIST, *page)
        last = rows[size - 1] if len(rows) > size else None
        token = time_token(last["created_at"], last["query_id"]) if last else ""
        return [_verified(row, reader.user_id) for row in rows[:size]], token

    async def delete(self, query_id: str, reader: Reader, by: By, *, may_review: bool) -> None:
        """Delete a verified query: one's own, or as a reviewer one of a group of the reader's.

        Raises:
            NotFound: there is none that the reader may read.
            PermissionDenied: it is another's, and the reader reviews none.
        """
        try:
            key = UUID(query_id)
        except ValueError:  # none can have such an id
            raise _not_found(query_id) from None
        rows = await fetch(self._readers, _ONE, *reader.arguments, key)
        if not rows:
            raise _not_found(query_id)
        if rows[0]["user_id"] != reader.user_id and not may_review:
            raise PermissionDenied(
                "Another member of the group verified this; its author, or a member with the role "
                '"approver", can take it back.',
                reason="ROLE_REQUIRED",
                metadata={"role": "approver"},
            )
        async with deed(self._pool) as session:
            if await session.fetchval(_DELETE, key) is None:
                raise _not_found(query_id)
            entry = by.entry("query.unverified", str(key), group=rows[0]["group_name"])
            await record(session, [entry])
        self._metrics.verified_queries.labels("deleted").inc()

    async def similar(
        self, question: str, reader: Reader, *, database: str = ""
    ) -> Sequence[QueryExample]:
        """Verified queries whose questions share words with this one, the most alike first.

        Args:
            question: What a step is asked.
            reader: User and groups of its run.
            database: The only one that counts; empty: any.
        """
        words = words_of(question)
        if not words:
            return ()
        rows = await fetch(
            self._readers, _SIMILAR, *reader.arguments, words, database, MAX_EXAMPLES
        )
        return [
            QueryExample(
                query_id=str(row["query_id"]),
                question=row["question"],
                query=_query(row),
                by_another_user=row["user_id"] != reader.user_id,
            )
            for row in rows
        ]


def _not_found(query_id: str) -> NotFound:
    return NotFound("There is no such verified query.", metadata={"query_id": query_id})


def _query(row: asyncpg.Record) -> DatabaseQuery:
    return DatabaseQuery(
        database=row["database"],
        dialect=row["dialect"],
        default_schema=row["default_schema"],
        sql=row["sql"],
        tables=row["tables"],
    )


def _verified(row: asyncpg.Record, user_id: str) -> VerifiedQuery:
    verified = VerifiedQuery(
        query_id=str(row["query_id"]),
        question=row["question"],
        query=_query(row),
        group=row["group_name"],
        run_id=str(row["run_id"]),
        step_id=row["step_id"],
        corrected=row["corrected"],
        own=row["user_id"] == user_id,
    )
    verified.create_time.FromDatetime(row["created_at"])
    return verified
