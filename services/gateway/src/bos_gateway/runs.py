"""What is stored about runs, for reading. Writing is the log writer's alone."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING
from uuid import UUID

from bos.gateway.v1 import (
    RUN_STATUS_ACCEPTED,
    RUN_STATUS_COMPOSING,
    RUN_STATUS_EXECUTING,
    RUN_STATUS_PLANNED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    Run,
)
from bos.runlog.v1 import LogEvent
from bos_chassis.errors import InvalidArgument, NotFound
from bos_chassis.paging import after_time, time_token
from bos_gateway.attempts import journal, working_context
from bos_gateway.log_session import SCHEMA_VERSION
from bos_gateway.projection import visible_response
from bos_gateway.state import BrokenLog, UnknownEvent
from bos_gateway.stored_cards import StoredCards
from bos_postgres import fetch, for_user

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos.gateway.v1 import ListRunsRequest
    from bos_gateway.state import RunState

_DEFAULT_PAGE = 50
PAGE_EVENTS = 500
PAGE_BYTES = 4 * 1024 * 1024

READER = "bos_gateway_reader"
"""Role that sees the runs of one user, by row-level security."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A query as the service itself runs it, and as it is run for a user."""

    plain: str
    for_user: str


def _query(sql: str) -> _Query:
    return _Query(sql, for_user(sql))


_BY_ID = _query("SELECT run_id, request_digest FROM runs WHERE run_id = $1 AND user_id = $2")
_BY_REQUEST = _query(
    "SELECT run_id, request_digest FROM runs WHERE user_id = $1 AND request_id = $2"
)
_LIST = """
SELECT run_id, request_id, user_id, conversation_id, question, status, created_at, updated_at,
       last_sequence
FROM runs AS r
WHERE user_id = $1 AND (created_at, run_id) < ($2, $3){filters}
ORDER BY created_at DESC, run_id DESC
LIMIT $4
"""
# The status of a run under way changes too often to be in an index; such runs are few.
_UNDER_WAY = frozenset(
    {
        RUN_STATUS_ACCEPTED,
        RUN_STATUS_PLANNED,
        RUN_STATUS_EXECUTING,
        RUN_STATUS_WAITING_FOR_APPROVAL,
        RUN_STATUS_COMPOSING,
    }
)
_LAST_SEQUENCE = _query("SELECT last_sequence AS last FROM runs WHERE run_id = $1")
_FIRST_EVENT = _query("SELECT payload FROM run_events WHERE run_id = $1 AND sequence = 1")
_OF_LOG = """
FROM (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY sequence) - octet_length(payload) AS before
    FROM run_events WHERE run_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3
) AS page
WHERE before < $4
"""
EVENTS = f"""
SELECT sequence, epoch, kind, schema_version, created_at, payload {_OF_LOG} ORDER BY sequence
"""
"""A page of a log: $3 events at most, and none behind the first $4 bytes; at least one event.

Lengths are known without reading what is stored outside of the row.
"""
_EVENTS = _query(EVENTS)
_LOOK = _query(f"""
SELECT 0 AS sequence, NULL AS payload, r.finished_at IS NOT NULL AS finished,
       r.replica_id IS NOT NULL AS driven, a.attempt, a.sequence AS started_at,
       CASE WHEN a.attempt = $5 THEN substr(a.text, $6 + 1) ELSE a.text END AS text
FROM runs AS r
     LEFT JOIN answers AS a ON a.run_id = r.run_id AND a.epoch = r.epoch AND r.finished_at IS NULL
WHERE r.run_id = $1
UNION ALL
(SELECT sequence, payload, NULL, NULL, NULL, NULL, NULL {_OF_LOG})
""")  # noqa: S608  our own text
_PROGRESS = """
SELECT r.run_id, r.finished_at IS NOT NULL AS finished, r.replica_id IS NOT NULL AS driven,
       r.last_sequence, a.attempt, a.characters
FROM runs AS r LEFT JOIN answers AS a ON a.run_id = r.run_id AND a.epoch = r.epoch
WHERE r.run_id = ANY ($1)
"""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The row of a run."""

    run_id: UUID
    request_digest: bytes


@dataclass(frozen=True, slots=True)
class Look:
    """What there is of a run behind a position, all of one moment."""

    events: Sequence[tuple[int, LogEvent]] = ()
    finished: bool = True
    """Also if the run is no longer stored."""
    driven: bool = False
    """Whether it has an owner."""
    attempt: int = 0
    """Of the answer's text, if somebody shows it."""
    started_at: int = 0
    """Sequence of the attempt's AnswerStarted."""
    text: str = ""
    """More of it."""
    more: bool = False
    """Whether there may be more events."""


class Runs:
    """Reads runs and their logs.

    Args:
        pool: Connections whose search path is the gateway's schema.
        readers: Such connections of the role ``READER``; without them nothing can be read for a
            user.
        user_id: For whom to read, so that PostgreSQL hides the runs of all others; None reads as
            the service itself, which drives everybody's runs.
        cards: What stands beside the logs; by default read with connections of ``pool``.
    """

    def __init__(
        self,
        pool: asyncpg.Pool[asyncpg.Record],
        readers: asyncpg.Pool[asyncpg.Record] | None = None,
        user_id: str | None = None,
        cards: StoredCards | None = None,
    ) -> None:
        self.cards = cards or StoredCards(pool)
        """The agents' cards that first events name."""
        self._pool = pool
        self._readers = readers
        self._user_id = user_id

    def of(self, user_id: str) -> Runs:
        """The same for one user: whatever is asked, nothing of anybody else is found."""
        return Runs(self._pool, self._readers, user_id, self.cards)

    async def find(self, run_id: UUID, user_id: str) -> StoredRun:
        """The user's run.

        Raises:
            NotFound: there is none, or it belongs to somebody else.
        """
        row = await self.of(user_id)._row(_BY_ID, run_id, user_id)
        if row is None:
            raise not_found(str(run_id))
        return _stored(row)

    async def find_request(self, user_id: str, request_id: str) -> StoredRun | None:
        """The user's run under this request id, if any."""
        row = await self.of(user_id)._row(_BY_REQUEST, user_id, request_id)
        return None if row is None else _stored(row)

    async def events(self, run_id: UUID, after_sequence: int = 0) -> list[tuple[int, LogEvent]]:
        """A page of the run's log after a sequence, oldest first; empty at the end."""
        rows = await self._page(run_id, after_sequence)
        return [(row["sequence"], LogEvent.FromString(row["payload"])) for row in rows]

    async def look(
        self, run_id: UUID, after_sequence: int, attempt: int = 0, characters: int = 0
    ) -> Look:
        """A page of the run's log and the text of its answer, in one query.

        Args:
            run_id: The run.
            after_sequence: The last event that is known.
            attempt: The attempt at the answer whose text is known.
            characters: How many characters of that are.
        """
        rows = await self._rows(
            _LOOK, run_id, after_sequence, PAGE_EVENTS, PAGE_BYTES, attempt, characters
        )
        if not rows:
            return Look()
        run, *page = sorted(rows, key=itemgetter("sequence"))
        _check_order(run_id, after_sequence, page)
        return Look(
            [(row["sequence"], LogEvent.FromString(row["payload"])) for row in page],
            finished=run["finished"],
            driven=run["driven"],
            attempt=run["attempt"] or 0,
            started_at=run["started_at"] or 0,
            text=run["text"] or "",
            more=len(page) == PAGE_EVENTS or sum(len(row["payload"]) for row in page) >= PAGE_BYTES,
        )

    async def progress(self, run_ids: Sequence[UUID]) -> dict[UUID, asyncpg.Record]:
        """How far these runs have got, whosever they are; those that are not stored are missing.

        For nobody's eyes: it only says which runs it is worth to read.
        """
        return {row["run_id"]: row for row in await fetch(self._pool, _PROGRESS, run_ids)}

    async def first_event(self, run_id: UUID) -> LogEvent:
        """The run's RunAccepted event, without the agents' cards.

        Raises:
            NotFound: the run is not stored.
        """
        row = await self._row(_FIRST_EVENT, run_id)
        if row is None:
            raise not_found(str(run_id))
        return LogEvent.FromString(row["payload"])

    async def last_sequence(self, run_id: UUID) -> int:
        """Where the run's log ends; 0 if it is not stored."""
        row = await self._row(_LAST_SEQUENCE, run_id)
        return (row["last"] if row is not None else None) or 0

    async def log(self, run_id: UUID) -> list[LogEvent]:
        """The whole log of a run: event ``n`` has sequence ``n + 1``.

        Raises:
            BrokenLog: an event is missing in it, or the agents' cards are.
            UnknownEvent: an event was written by a newer version.
        """
        found: list[LogEvent] = []
        while page := await self._page(run_id, len(found)):
            for row in page:
                if row["schema_version"] > SCHEMA_VERSION:
                    raise UnknownEvent(f"run {run_id}, event {row['sequence']}")
                found.append(LogEvent.FromString(row["payload"]))
        if found:
            await self.cards.put_back(found[0])
        return found

    async def _page(self, run_id: UUID, after_sequence: int) -> Sequence[asyncpg.Record]:
        page = await self._rows(_EVENTS, run_id, after_sequence, PAGE_EVENTS, PAGE_BYTES)
        _check_order(run_id, after_sequence, page)
        return page

    async def list(self, request: ListRunsRequest, user_id: str) -> tuple[list[Run], str]:
        """A page of the user's runs, newest first, and the token of the next page.

        Raises:
            InvalidArgument: the page token is not one of ours.
        """
        if "\0" in request.conversation_id:
            raise InvalidArgument.field("conversation_id", "must not contain U+0000")
        before, last_id = after_time(request.page_token)
        size = request.page_size or _DEFAULT_PAGE
        filters = ""
        arguments: list[object] = [user_id, before, last_id, size + 1]
        # A text for each set of filters, as each is planned by an index of its own.
        if request.status:
            arguments.append(request.status)
            under_way = request.status in _UNDER_WAY
            filters = (
                " AND finished_at IS NULL AND status = $5" if under_way else " AND outcome = $5"
            )
        if request.conversation_id:
            arguments.append(request.conversation_id)
            filters += f" AND conversation_id <> '' AND conversation_id = ${len(arguments)}"
        rows = await self.of(user_id)._rows(_query(_LIST.format(filters=filters)), *arguments)
        runs = [_listed(row) for row in rows[:size]]
        more = len(rows) > size
        last = rows[size - 1] if more else None
        return runs, time_token(last["created_at"], last["run_id"]) if last else ""

    async def _row(self, query: _Query, *arguments: object) -> asyncpg.Record | None:
        rows = await self._rows(query, *arguments)
        return rows[0] if rows else None

    async def _rows(self, query: _Query, *arguments: object) -> Sequence[asyncpg.Record]:
        if self._user_id is None:
            return await fetch(self._pool, query.plain, *arguments)
        if self._readers is None:
            raise RuntimeError("reading for a user needs connections of the readers' role")
        return await fetch(self._readers, query.for_user, self._user_id, *arguments)


def run_of(state: RunState) -> Run:
    """The run with plan and response, as its owner may see it."""
    accepted = state.request
    run = Run(
        run_id=state.run_id,
        request_id=accepted.request.request_id,
        user_id=accepted.user_id,
        conversation_id=accepted.request.conversation_id,
        question=accepted.request.question,
        continues_run_id=accepted.request.continues_run_id,
        original_question=accepted.original_question,
        status=state.status,
        last_sequence=state.last_sequence,
        revision=state.revision,
        journal=journal(state),
        working_context=working_context(state),
    )
    run.create_time.FromDatetime(state.accept_time)
    run.update_time.FromDatetime(state.update_time)
    if state.plan is not None:
        run.plan.CopyFrom(state.plan)
    if state.response is not None:
        run.response.CopyFrom(visible_response(state.response, accepted.request))
    return run


def not_found(run_id: str) -> NotFound:
    """What everybody hears about a run that is not theirs, whether it exists or not."""
    return NotFound("There is no such run.", metadata={"run_id": run_id})


def parse_run_id(text: str) -> UUID:
    """The run id in ``text``.

    Raises:
        NotFound: it is not of the form of a run id, so no run can have it.
    """
    try:
        return UUID(text)
    except ValueError:
        raise not_found(text) from None


def _check_order(run_id: UUID, after: int, page: Sequence[asyncpg.Record]) -> None:
    """Raise BrokenLog unless the rows are the events behind ``after``, one by one."""
    for sequence, row in enumerate(page, after + 1):
        if row["sequence"] != sequence:
            raise BrokenLog(f"run {run_id} lacks event {sequence}")


def _stored(row: asyncpg.Record) -> StoredRun:
    return StoredRun(row["run_id"], row["request_digest"])


def _listed(row: asyncpg.Record) -> Run:
    run = Run(
        run_id=str(row["run_id"]),
        request_id=row["request_id"],
        user_id=row["user_id"],
        conversation_id=row["conversation_id"],
        question=row["question"],
        status=row["status"],
        last_sequence=row["last_sequence"] or 0,
    )
    run.create_time.FromDatetime(row["created_at"])
    run.update_time.FromDatetime(row["updated_at"])
    return run
