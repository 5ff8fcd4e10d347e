"""LISTEN/NOTIFY between gateway replicas.

One channel, heard by one LISTEN connection per process. A message never carries news itself, only
where to look; a replica that misses one finds out within a second by looking anyway.

============  =============================================  ====================================
message       sent                                           what the listener does
============  =============================================  ====================================
``input R``   by the statement that stores an input of R     looks for inputs, if it drives R
``released``  by the statement that frees runs               adopts
``follow R``  by who follows R without driving it            if it drives R, says ``events R``
                                                             and shows the answer's text from now
                                                             on, for a while
``events R``  after events of R, if it is followed           reads R's log and text, if it follows
              ``follow R`` lately, when R was adopted, and   R
              by the statement that writes R's text
============  =============================================  ====================================

NOTIFY takes a lock of the whole database server at commit, so the log's writer never does it: the
events of a run not followed from elsewhere, which are nearly all, cost nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from uuid import UUID
from weakref import WeakValueDictionary

from attrs import define, field

from bos_gateway.run_log.session import session_name
from bos_postgres import Notices, execute

if TYPE_CHECKING:
    from collections.abc import Callable

    import asyncpg

    Pool = asyncpg.Pool[asyncpg.Record]
    AnswerOf = Callable[[UUID], tuple[int, int, int, str] | None]
    """Epoch, attempt, sequence of its AnswerStarted, and text of a run that is driven here."""

CHANNEL: Final = "bos_gateway_runs"
POLL_S: Final = 1.0
"""Longest time for which a message that was lost goes unnoticed."""

_FOLLOWED_S: Final = 15.0
_ROUND_S = 0.1
# The whole text is written each time, so the longer it is the less often.
_CHARACTERS_PER_S = 256 * 1024
_MOST_CHARACTERS = 4 * 1024 * 1024
# set_config is in force for this statement's own commit because the rest refers to it.
_NOTIFY: Final = """
WITH mode AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
SELECT pg_notify($1, message) FROM mode, unnest($2::text[]) AS message
"""
# A text of an earlier owner is void from the moment the epoch grows, so readers compare that
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


@define(eq=False)
class Answers:
    """Writes the texts of runs driven here, as far as they changed and are followed elsewhere.

    One row per run, overwritten. It is lost with PostgreSQL and written again with the next words;
    no answer depends on it, that is in the log.
    """

    _pool: Pool
    _changed: dict[UUID, float] = field(init=False, factory=dict)
    _written_until: dict[UUID, float] = field(init=False, factory=dict)
    _waiting: asyncio.Event = field(init=False, factory=asyncio.Event)

    def changed(self, run_id: UUID) -> None:
        """Mark the text of a run that is followed on another replica as changed."""
        self._changed.setdefault(run_id, self._written_until.get(run_id, 0.0))
        self._waiting.set()

    def forget(self, run_id: UUID) -> None:
        """The run is no longer driven here."""
        self._changed.pop(run_id, None)
        self._written_until.pop(run_id, None)

    async def write_changed(self, answer_of: AnswerOf) -> None:
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
            await execute(self._pool, _WRITE, *columns, CHANNEL)


@define(eq=False)
class Notifications:
    """Messages to and from the other replicas."""

    _dsn: str = field(repr=False)
    _replica_id: UUID
    _pool: Pool
    inputs: asyncio.Event = field(init=False, factory=asyncio.Event)
    """Set when there may be inputs for runs driven here."""
    released: asyncio.Event = field(init=False, factory=asyncio.Event)
    """Set when there may be runs to adopt."""
    answers: Answers = field(init=False)
    """Texts of answers, for those who follow elsewhere."""
    _news: WeakValueDictionary[UUID, asyncio.Event] = field(init=False, factory=WeakValueDictionary)
    _followed_until: dict[UUID, float] = field(init=False, factory=dict)
    _outgoing: set[str] = field(init=False, factory=set)
    _waiting: asyncio.Event = field(init=False, factory=asyncio.Event)

    @answers.default
    def _answers_of_runs_here(self) -> Answers:
        return Answers(self._pool)

    def news(self, run_id: UUID) -> asyncio.Event:
        """Event that is set once when a run has news; get a new one before the next look."""
        return self._news.setdefault(run_id, asyncio.Event())

    def wake(self, run_id: UUID) -> None:
        """Wake all followers of a run here."""
        news = self._news.pop(run_id, None)
        if news is not None:
            news.set()

    def follow(self, run_id: UUID) -> None:
        """Notify the owner of a run that a client here follows it; expires after a while."""
        self._say(f"follow {run_id}")

    def shown(self, run_id: UUID, *, text: bool) -> None:
        """Events of a run driven here were committed, or there is more of its answer's text."""
        if time.monotonic() >= self._followed_until.get(run_id, 0.0):
            self._followed_until.pop(run_id, None)
        elif text:
            self.answers.changed(run_id)
        else:
            self._say(f"events {run_id}")

    def adopted(self, run_id: UUID) -> None:
        """A run was taken over here."""
        self.wake(run_id)
        self._say(f"events {run_id}")

    def forget(self, run_id: UUID) -> None:
        """The run is no longer driven here."""
        self._followed_until.pop(run_id, None)
        self.answers.forget(run_id)

    async def send_pending(self) -> None:
        """Send what is waiting, all of it in one statement; what fails is left to the readers."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            messages, self._outgoing = list(self._outgoing), set()
            await execute(self._pool, _NOTIFY, CHANNEL, messages)

    async def listen(self, drives: Callable[[UUID], bool]) -> None:
        """Process notifications of other replicas; ``drives`` says whether a run is driven here.

        Raises:
            Unavailable: PostgreSQL was not there to begin with.
        """
        name = session_name("listener", self._replica_id)
        async with Notices(self._dsn, CHANNEL, poll_s=POLL_S, application_name=name) as notices:
            async for message in notices:
                if message is None:  # those who follow a run look by themselves
                    self.inputs.set()
                    self.released.set()
                else:
                    self._heard(message, drives)

    def _heard(self, message: str, drives: Callable[[UUID], bool]) -> None:
        with suppress(ValueError):  # of a version that says more than this one understands
            match message.split():
                case ["released"]:
                    self.released.set()
                case ["events", run_id]:
                    self.wake(UUID(run_id))
                case ["input", run_id] if drives(UUID(run_id)):
                    self.inputs.set()
                case ["follow", run_id] if drives(followed := UUID(run_id)):
                    self._followed_until[followed] = time.monotonic() + _FOLLOWED_S
                    # What was committed between its last look and now.
                    self._say(f"events {followed}")
                    self.answers.changed(followed)

    def _say(self, message: str) -> None:
        self._outgoing.add(message)
        self._waiting.set()
