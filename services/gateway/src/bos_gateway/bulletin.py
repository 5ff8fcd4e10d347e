"""What the replicas tell one another through PostgreSQL, and what follows from it here.

One channel, heard by one LISTEN connection per process. A message never carries news itself, only
where to look; whoever misses one finds out within a second by looking anyway.

============  =============================================  ====================================
message       sent                                           whoever hears it
============  =============================================  ====================================
``input R``   by the statement that stores an input of R     looks for inputs, if it drives R
``released``  by the statement that frees runs               adopts
``follow R``  by who follows R without driving it            if it drives R, says ``events R``
                                                             and shows the answer's text from now
                                                             on, for a while
``events R``  after events of R, if somebody said            reads R's log and text, if it follows
              ``follow R`` lately, when R was adopted, and   R
              by the statement that writes R's text
============  =============================================  ====================================

NOTIFY takes a lock of the whole database server at commit, so the log's writer never does it: the
events of a run nobody follows from elsewhere, which are nearly all, cost nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bos_gateway.answers import Answers
from bos_gateway.sessions import session_name
from bos_postgres import Notices, execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import asyncpg

    from bos_chassis.telemetry import Telemetry

CHANNEL: Final = "bos_gateway_runs"
POLL_S: Final = 1.0
"""Longest time for which a message that was lost goes unnoticed."""

_FOLLOWED_S: Final = 15.0
# set_config is in force for this statement's own commit because the rest refers to it.
_NOTIFY: Final = """
WITH mode AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
SELECT pg_notify($1, message) FROM mode, unnest($2::text[]) AS message
"""


class Bulletin:
    """Messages to and from the other replicas.

    Args:
        dsn: PostgreSQL, for listening.
        replica_id: This process.
        pool: Connections for telling.
        telemetry: For the log.
    """

    def __init__(
        self,
        dsn: str,
        replica_id: UUID,
        pool: asyncpg.Pool[asyncpg.Record],
        telemetry: Telemetry,
    ) -> None:
        self._dsn = dsn
        self._name = session_name("listener", replica_id)
        self._pool = pool
        self._log = telemetry.logger("bos.gateway.bulletin")
        self.inputs = asyncio.Event()
        """Set when there may be inputs for runs driven here."""
        self.released = asyncio.Event()
        """Set when there may be runs to adopt."""
        self.answers = Answers(pool, CHANNEL)
        """Texts of answers, for those who follow elsewhere."""
        self._readers: dict[UUID, set[asyncio.Event]] = {}
        self._followed_until: dict[UUID, float] = {}
        self._outgoing: set[str] = set()
        self._waiting = asyncio.Event()

    @contextmanager
    def reading(self, run_id: UUID, news: asyncio.Event) -> Iterator[None]:
        """Have ``news`` set for the length of the block when there is more of a run."""
        self._readers.setdefault(run_id, set()).add(news)
        try:
            yield
        finally:
            readers = self._readers[run_id]
            readers.discard(news)
            if not readers:
                del self._readers[run_id]

    def follow(self, run_id: UUID) -> None:
        """Tell the owner of a run that somebody here follows it; wears off after a while."""
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
        self._wake(run_id)
        self._say(f"events {run_id}")

    def forget(self, run_id: UUID) -> None:
        """The run is no longer driven here."""
        self._followed_until.pop(run_id, None)
        self.answers.forget(run_id)

    async def tell_for_ever(self) -> None:
        """Send what is waiting, all of it in one statement; what fails is left to the readers."""
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            messages, self._outgoing = list(self._outgoing), set()
            await execute(self._pool, _NOTIFY, CHANNEL, messages)

    async def listen_for_ever(self, drives: Callable[[UUID], bool]) -> None:
        """Hear the others; ``drives`` says whether a run is driven here.

        Raises:
            Unavailable: PostgreSQL was not there to begin with.
        """
        async with Notices(
            self._dsn, CHANNEL, poll_s=POLL_S, application_name=self._name
        ) as notices:
            async for message in notices:
                if message is None:
                    self._look_everywhere()
                else:
                    self._heard(message, drives)

    def _look_everywhere(self) -> None:
        # Those who follow a run look by themselves.
        self.inputs.set()
        self.released.set()

    def _heard(self, message: str, drives: Callable[[UUID], bool]) -> None:
        word, _, rest = message.partition(" ")
        if word == "released":
            self.released.set()
            return
        try:
            run_id = UUID(rest)
        except ValueError:
            return  # of a version that says more than this one understands
        if word == "events":
            self._wake(run_id)
        elif word == "input" and drives(run_id):
            self.inputs.set()
        elif word == "follow" and drives(run_id):
            self._followed_until[run_id] = time.monotonic() + _FOLLOWED_S
            # What was committed between its last look and now.
            self._say(f"events {run_id}")
            self.answers.changed(run_id)

    def _wake(self, run_id: UUID) -> None:
        for news in self._readers.get(run_id, ()):
            news.set()

    def _say(self, message: str) -> None:
        self._outgoing.add(message)
        self._waiting.set()
