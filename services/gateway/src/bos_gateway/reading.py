"""A run as its readers see it: from memory while it is driven here, from the log otherwise."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from bos_chassis.errors import NotFound, Unavailable
from bos_gateway.cursors import Piece
from bos_gateway.elsewhere import Elsewhere
from bos_gateway.state import UnknownEvent, fold

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractContextManager
    from uuid import UUID

    from typing_extensions import TypeIs

    from bos.common.v1 import Artefact
    from bos.gateway.v1 import AgentRequest
    from bos.runlog.v1 import LogEvent
    from bos_gateway.bulletin import Bulletin
    from bos_gateway.cursors import Cursor
    from bos_gateway.feed import RunFeed
    from bos_gateway.runs import Runs
    from bos_gateway.state import RunState


class RunReader:
    """Follows runs, whoever drives them.

    Args:
        runs: The stored logs.
        bulletin: What the other replicas say.
        feed_of: The feed of a run that is driven here; None for any other.
    """

    def __init__(
        self, runs: Runs, bulletin: Bulletin, feed_of: Callable[[UUID], RunFeed | None]
    ) -> None:
        self._runs = runs
        self._feed_of = feed_of
        self.elsewhere = Elsewhere(runs, bulletin, lambda run_id: feed_of(run_id) is not None)
        """Runs that others drive."""
        self._stopping = False

    def stop(self) -> None:
        """Send followers elsewhere as soon as their run is no longer driven here."""
        self._stopping = True
        self.elsewhere.stop()

    async def follow(
        self, run_id: UUID, after: Cursor, user_id: str
    ) -> AsyncIterator[tuple[int, LogEvent | Piece]]:
        """Events and text of a run of the user's behind a cursor, until its end.

        Raises:
            Unavailable: this replica is stopping; another one goes on from the same cursor.
        """
        runs, cursor = self._runs.of(user_id), after
        if after.sequence:
            # From beyond the end, one goes on behind the end: a feed that others share begins here.
            cursor = after._replace(sequence=min(after.sequence, await runs.last_sequence(run_id)))
        while True:
            with self._feed(run_id, user_id, cursor) as feed:
                async for sequence, shown in feed.follow(cursor):
                    cursor = cursor.moved(sequence, shown)
                    yield sequence, shown
                    if is_end(shown):
                        return
            # The feed closed without an end, as the run changed hands, or holds later events only.
            if self._stopping:
                raise unavailable()
            look = await runs.look(run_id, cursor.sequence)
            for sequence, event in look.events:
                cursor = cursor.moved(sequence, event)
                yield sequence, event
            if look.finished and not look.more:
                return

    def _feed(self, run_id: UUID, user_id: str, cursor: Cursor) -> AbstractContextManager[RunFeed]:
        feed = self._feed_of(run_id)
        if feed is not None:
            return nullcontext(feed)
        return self.elsewhere.feed(run_id, user_id, cursor.sequence)

    async def state(self, run_id: UUID, user_id: str) -> RunState:
        """The present state of a run of the user's.

        Raises:
            Unavailable: a newer version wrote to the run; only that version can say.
        """
        try:
            return fold(str(run_id), list(await self._events(run_id, user_id)))
        except UnknownEvent:
            raise _newer_version() from None

    async def file(self, run_id: UUID, digest: str, user_id: str) -> Artefact:
        """What a run of the user's says about a file of one of its steps.

        Only what results list is a file: the store holds more of a run, which is nobody's to see.

        Args:
            run_id: The run.
            digest: Hex digits of the file's SHA-256.
            user_id: The run's owner.

        Raises:
            NotFound: no step of the run made such a file.
            Unavailable: see :meth:`state`.
        """
        try:
            events = await self._events(run_id, user_id)
        except UnknownEvent:
            raise _newer_version() from None
        for event in events:
            if event.HasField("step_finished"):
                for file in event.step_finished.result.files:
                    if file.digest == f"sha256:{digest}":
                        return file
        raise NotFound("This run has no such file.", reason="FILE_NOT_FOUND")

    async def _events(self, run_id: UUID, user_id: str) -> Sequence[LogEvent]:
        feed = self._feed_of(run_id)
        return feed.events if feed else await self._runs.of(user_id).log(run_id)

    async def request(self, run_id: UUID, user_id: str) -> AgentRequest:
        """The request that a run of the user's was accepted with."""
        feed = self._feed_of(run_id)
        first = feed.events[0] if feed else await self._runs.of(user_id).first_event(run_id)
        return first.run_accepted.request


def is_end(shown: LogEvent | Piece) -> TypeIs[LogEvent]:
    """Whether it is the run's end."""
    return not isinstance(shown, Piece) and shown.HasField("run_finished")


def _newer_version() -> Unavailable:
    return Unavailable(
        "A newer version of the service works on this run; ask again.",
        reason="NEWER_VERSION",
        retry_after_s=1.0,
    )


def unavailable() -> Unavailable:
    """What a replica says that takes no runs and shows none."""
    return Unavailable("This replica cannot take or follow runs now; ask again.", retry_after_s=0.5)
