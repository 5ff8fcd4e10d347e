"""Reads stored runs: log, lists, cards of agents."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import asyncpg
from attrs import define, evolve, field

from bos.agent.v1 import AgentCard
from bos.gateway import v1 as gateway
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_chassis.paging import after_time, time_token
from bos_errors import InvalidArgument, NotFound
from bos_gateway.core.public_events import visible_response
from bos_gateway.core.revision_context import journal, working_context
from bos_gateway.core.run_state import BrokenLog, RunState, UnknownEvent
from bos_gateway.run_log.statements import SCHEMA_VERSION
from bos_postgres import execute, fetch, fetchval, for_user

_DEFAULT_PAGE = 50
PAGE_EVENTS = 500
PAGE_BYTES = 4 * 1024 * 1024

READER = "bos_gateway_reader"
"""Role that sees the runs of one user, by row-level security."""


_BY_ID = "SELECT run_id FROM runs WHERE run_id = $1 AND user_id = $2"
_BY_REQUEST = "SELECT run_id, request_digest FROM runs WHERE user_id = $1 AND request_id = $2"
_LIST = """
SELECT run_id, request_id, user_id, conversation_id, question, status, created_at, updated_at,
       last_sequence
FROM runs AS r
WHERE user_id = $1 AND (created_at, run_id) < ($2, $3){filters}
ORDER BY created_at DESC, run_id DESC
LIMIT $4
"""
# The status of a run under way changes too often to be in an index; such runs are few.
UNDER_WAY = (
    gateway.RUN_STATUS_ACCEPTED,
    gateway.RUN_STATUS_PLANNED,
    gateway.RUN_STATUS_EXECUTING,
    gateway.RUN_STATUS_WAITING_FOR_APPROVAL,
    gateway.RUN_STATUS_COMPOSING,
)
_LAST_SEQUENCE = "SELECT last_sequence FROM runs WHERE run_id = $1"
_FIRST_EVENT = "SELECT payload FROM run_events WHERE run_id = $1 AND sequence = 1"
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
# The first row is about the run, in the order of Look; the others are its events.
_LOOK = f"""
SELECT 0 AS sequence, NULL AS payload, r.finished_at IS NOT NULL AS finished,
       coalesce(a.attempt, 0) AS attempt, coalesce(a.sequence, 0) AS started_at,
       coalesce(CASE WHEN a.attempt = $5 THEN substr(a.text, $6 + 1) ELSE a.text END, '') AS text
FROM runs AS r
     LEFT JOIN answers AS a ON a.run_id = r.run_id AND a.epoch = r.epoch AND r.finished_at IS NULL
WHERE r.run_id = $1
UNION ALL
(SELECT sequence, payload, NULL, NULL, NULL, NULL {_OF_LOG})
"""  # noqa: S608  our own text
_PROGRESS = """
SELECT r.run_id, r.finished_at IS NOT NULL AS finished, r.replica_id IS NOT NULL AS driven,
       r.last_sequence, a.attempt, a.characters
FROM runs AS r LEFT JOIN answers AS a ON a.run_id = r.run_id AND a.epoch = r.epoch
WHERE r.run_id = ANY ($1)
"""
_STORE_CARDS = "INSERT INTO cards (digest, payload) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_LOAD_CARDS = "SELECT payload FROM cards WHERE digest = $1"
_LATEST_CARDS = "SELECT payload FROM cards ORDER BY created_at DESC LIMIT 64"
_CARDS_KEPT = 64
_for_user = cache(for_user)


class StoredRun(NamedTuple):
    """The row of a run."""

    run_id: UUID
    request_digest: bytes


class Look(NamedTuple):
    """Events and text of a run behind a position, all of one moment."""

    events: Sequence[tuple[int, LogEvent]] = ()
    more: bool = False
    """Whether there may be more events."""
    finished: bool = True
    """Also if the run is no longer stored."""
    attempt: int = 0
    """Of the answer's text, if its owner shows it."""
    started_at: int = 0
    """Sequence of the attempt's AnswerStarted."""
    text: str = ""
    """More of it."""


@define(eq=False)
class StoredCards:
    """Agents' cards by the digest of their serialised form: stored once for all runs.

    The first event of a run holds the cards of all agents, as they were then, for the whole life of
    the run. In the log their digest stands in their place, and readers of a log put them back.
    Sets of cards are never deleted: there is one for each change of an agent that a question has
    followed.
    """

    _pool: asyncpg.Pool[asyncpg.Record]
    _known: dict[bytes, bytes] = field(init=False, factory=dict)

    async def without(self, event: LogEvent) -> LogEvent:
        """A RunAccepted event as it is stored: its cards are, and it names them by their digest.

        Raises:
            Unavailable: the store is away.
        """
        cards = RunAccepted(cards=event.run_accepted.cards)
        payload = cards.SerializeToString(deterministic=True)
        digest = hashlib.sha256(payload).digest()
        if digest not in self._known:
            await execute(self._pool, _STORE_CARDS, digest, payload)
            self._keep(digest, payload)
        stored = LogEvent()
        stored.CopyFrom(event)
        stored.run_accepted.ClearField("cards")
        stored.run_accepted.cards_digest = digest
        return stored

    async def put_back(self, event: LogEvent) -> None:
        """Put the cards that a stored RunAccepted event names into it, in place.

        Raises:
            BrokenLog: they are not stored.
            Unavailable: the store is away.
        """
        accepted = event.run_accepted
        digest = accepted.cards_digest
        if not digest or accepted.cards:
            return
        if digest not in self._known:
            payload = await fetchval(self._pool, _LOAD_CARDS, digest)
            if payload is None:
                raise BrokenLog(f"the agents' cards {digest.hex()} are not stored")
            self._keep(digest, payload)
        accepted.MergeFromString(self._known[digest])

    async def latest(self) -> list[AgentCard]:
        """The latest card of every agent that runs were accepted with of late.

        Raises:
            Unavailable: the store is away.
        """
        found: dict[str, AgentCard] = {}
        for (payload,) in await fetch(self._pool, _LATEST_CARDS):
            for card in RunAccepted.FromString(payload).cards:
                found.setdefault(card.name, card)
        return list(found.values())

    def _keep(self, digest: bytes, payload: bytes) -> None:
        self._known[digest] = payload
        if len(self._known) > _CARDS_KEPT:
            del self._known[next(iter(self._known))]


@define(eq=False)
class Runs:
    """Reads runs and their logs."""

    _pool: asyncpg.Pool[asyncpg.Record]
    """Connections whose search path is the gateway's schema."""
    _readers: asyncpg.Pool[asyncpg.Record] | None = None
    """Such connections of the role ``READER``; without them nothing can be read for a user."""
    _user_id: str | None = None
    """For whom to read, so that PostgreSQL hides the runs of all others; None reads as the service
    itself, which drives the runs of all users."""
    cards: StoredCards = field()
    """The agents' cards that first events name."""

    @cards.default
    def _own_cards(self) -> StoredCards:
        return StoredCards(self._pool)

    def of(self, user_id: str) -> Runs:
        """The same for one user: rows of other users are never found."""
        return evolve(self, user_id=user_id)

    async def find(self, run_id: str, user_id: str) -> UUID:
        """The id of a run of the user's, from its text.

        Raises:
            NotFound: there is none, or it belongs to another user.
        """
        try:
            key = UUID(run_id)
        except ValueError:  # no run can have such an id
            raise not_found(run_id) from None
        if await self.of(user_id)._row(_BY_ID, key, user_id) is None:
            raise not_found(run_id)
        return key

    async def find_request(self, user_id: str, request_id: str) -> StoredRun | None:
        """The user's run under this request id, if any."""
        row = await self.of(user_id)._row(_BY_REQUEST, user_id, request_id)
        return None if row is None else StoredRun(*row)

    async def events(self, run_id: UUID, after_sequence: int = 0) -> Sequence[tuple[int, LogEvent]]:
        """A page of the run's log after a sequence, oldest first; empty at the end."""
        return (await self.look(run_id, after_sequence)).events

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
        events = [(row["sequence"], LogEvent.FromString(row["payload"])) for row in page]
        more = len(page) == PAGE_EVENTS or sum(len(row["payload"]) for row in page) >= PAGE_BYTES
        _, _, *about_run = run
        return Look(events, more, *about_run)

    async def progress(self, run_ids: Sequence[UUID]) -> dict[UUID, asyncpg.Record]:
        """Progress of these runs, of any user; those that are not stored are missing.

        Not for clients: it only says which runs it is worth to read.
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
        """Sequence of the last event of the run's log; 0 if it is not stored."""
        row = await self._row(_LAST_SEQUENCE, run_id)
        return row["last_sequence"] if row else 0

    async def log(self, run_id: UUID) -> list[LogEvent]:
        """The whole log of a run: event ``n`` has sequence ``n + 1``.

        Raises:
            BrokenLog: an event is missing in it, or the agents' cards are.
            UnknownEvent: an event was written by a newer version.
        """
        found: list[LogEvent] = []
        while page := await self._rows(EVENTS, run_id, len(found), PAGE_EVENTS, PAGE_BYTES):
            _check_order(run_id, len(found), page)
            for row in page:
                if row["schema_version"] > SCHEMA_VERSION:
                    raise UnknownEvent(f"run {run_id}, event {row['sequence']}")
                found.append(LogEvent.FromString(row["payload"]))
        if found:
            await self.cards.put_back(found[0])
        return found

    async def list(
        self, request: gateway.ListRunsRequest, user_id: str
    ) -> tuple[list[gateway.Run], str]:
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
            under_way = request.status in UNDER_WAY
            filters = f" AND {'finished_at IS NULL AND status' if under_way else 'outcome'} = $5"
        if request.conversation_id:
            arguments.append(request.conversation_id)
            filters += f" AND conversation_id <> '' AND conversation_id = ${len(arguments)}"
        rows = await self.of(user_id)._rows(_LIST.format(filters=filters), *arguments)
        last = rows[size - 1] if len(rows) > size else None
        token = time_token(last["created_at"], last["run_id"]) if last else ""
        return [_listed(row) for row in rows[:size]], token

    async def _row(self, sql: str, *arguments: object) -> asyncpg.Record | None:
        rows = await self._rows(sql, *arguments)
        return rows[0] if rows else None

    async def _rows(self, sql: str, *arguments: object) -> Sequence[asyncpg.Record]:
        if self._user_id is None:
            return await fetch(self._pool, sql, *arguments)
        assert self._readers is not None, "reading for a user needs the readers' connections"
        return await fetch(self._readers, _for_user(sql), self._user_id, *arguments)


def run_of(state: RunState) -> gateway.Run:
    """The run with plan and response, as its owner may see it."""
    accepted = state.request
    run = gateway.Run(
        run_id=state.run_id,
        request_id=accepted.request.request_id,
        user_id=accepted.user_id,
        conversation_id=accepted.request.conversation_id,
        question=accepted.request.question,
        continues_run_id=accepted.request.continues_run_id,
        original_question=accepted.original_question,
        model=accepted.request.model,
        status=state.status,
        plan=state.plan,
        last_sequence=state.last_sequence,
        revision=state.revision,
        journal=journal(state),
        working_context=working_context(state),
    )
    run.create_time.FromDatetime(state.accept_time)
    run.update_time.FromDatetime(state.update_time)
    if state.response is not None:
        run.response.CopyFrom(visible_response(state.response, accepted.request))
    return run


def not_found(run_id: str) -> NotFound:
    """The same error for a run that does not exist and for one of another user."""
    return NotFound("There is no such run.", metadata={"run_id": run_id})


def _check_order(run_id: UUID, after: int, page: Sequence[asyncpg.Record]) -> None:
    """Raise BrokenLog unless the rows are the events behind ``after``, one by one."""
    for sequence, row in enumerate(page, after + 1):
        if row["sequence"] != sequence:
            raise BrokenLog(f"run {run_id} lacks event {sequence}")


def _listed(row: asyncpg.Record) -> gateway.Run:
    columns = dict(row, run_id=str(row["run_id"]))
    created_at, updated_at = columns.pop("created_at"), columns.pop("updated_at")
    run = gateway.Run(**columns)
    run.create_time.FromDatetime(created_at)
    run.update_time.FromDatetime(updated_at)
    return run
