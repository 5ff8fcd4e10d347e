"""Follows a run: from memory while it is driven here, from the log otherwise.

A run that another replica drives is read once, however many follow it here: when its owner says
that there is more, or when the query that asks once a second how far all of them have got says so.
One that waits costs nothing but its place in that query.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING

from attrs import define, field

from bos_errors import NotFound, Unavailable
from bos_gateway.core.fold import fold
from bos_gateway.core.public_events import Cursor, Piece
from bos_gateway.core.run_state import UnknownEvent
from bos_gateway.run_log.reader import Look
from bos_gateway.runs.feed import RunFeed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from uuid import UUID

    import asyncpg
    from typing_extensions import TypeIs

    from bos.common.v1 import Artefact
    from bos.gateway.v1 import AgentRequest
    from bos.runlog.v1 import LogEvent
    from bos_gateway.core.run_state import RunState
    from bos_gateway.run_log.notifications import Notifications
    from bos_gateway.run_log.reader import Runs

_FOLLOW_AGAIN = 5
"""Rounds of looking, a second each, after which owners are notified anew of followed runs."""
# A run may end before its owner hears that it is followed.
_LOOK_AGAIN_S = 0.1
# Followers further behind read the log; these are held once for all who keep up.
_HELD_EVENTS = 64


@define(eq=False)
class _Followed:
    """A run of a user's that another replica drives."""

    run_id: UUID
    user_id: str
    feed: RunFeed
    followers: int = 0
    task: asyncio.Task[None] | None = None
    seen: asyncpg.Record | None = None


@define(eq=False)
class RunReader:
    """Follows runs, on any replica that drives them."""

    _runs: Runs
    _notifications: Notifications
    """Messages from and to the other replicas."""
    _feed_of: Callable[[UUID], RunFeed | None]
    """The feed of a run that is driven here; None for any other."""
    # By user as well: what one was allowed to read is shown to no other.
    _followed: dict[tuple[UUID, str], _Followed] = field(init=False, factory=dict)
    _round: int = field(init=False, default=0)
    _stopping: bool = field(init=False, default=False)

    def stop(self) -> None:
        """Send followers elsewhere as soon as their run is no longer driven here."""
        self._stopping = True
        for run_id, _ in self._followed:
            self._notifications.wake(run_id)

    async def follow(
        self, run_id: UUID, after: Cursor, user_id: str
    ) -> AsyncGenerator[tuple[int, LogEvent | Piece]]:
        """Events and text of a run of the user's behind a cursor, until its end.

        Raises:
            Unavailable: this replica is stopping; another one goes on from the same cursor.
        """
        runs, cursor = self._runs.of(user_id), after
        if after.sequence:
            # From beyond the end, one goes on behind the end: a feed that others share begins here.
            cursor = after._replace(sequence=min(after.sequence, await runs.last_sequence(run_id)))
        while True:
            with self._feed(run_id, user_id, cursor.sequence) as feed:
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

    async def wait(self, run_id: UUID, known: int | None, user_id: str, within_s: float) -> None:
        """Wait until a run of the user's has ended, or has gone on.

        Returns early if this replica is stopping; what there is by then can still be read.

        Args:
            run_id: The run.
            known: Sequence of the last event that is known; None: wait for the run's end.
            user_id: The run's owner.
            within_s: Longest wait in seconds.
        """
        last = await self._runs.of(user_id).last_sequence(run_id)
        if known is not None and known < last:
            return
        with suppress(TimeoutError, Unavailable):
            async with (
                asyncio.timeout(within_s),
                aclosing(self.follow(run_id, Cursor(last), user_id)) as following,
            ):
                async for sequence, shown in following:
                    is_event = not isinstance(shown, Piece)
                    if known is not None and is_event and sequence > known:
                        return

    async def state(self, run_id: UUID, user_id: str) -> RunState:
        """The present state of a run of the user's.

        Raises:
            Unavailable: a newer version wrote to the run; only that version can say.
        """
        with _of_this_version():
            return fold(str(run_id), list(await self._events(run_id, user_id)))

    async def file(self, run_id: UUID, digest: str, user_id: str) -> Artefact:
        """Artefact of a run of the user's, as its results list it.

        Only what results list is a file: the store holds more of a run, which no client may see.

        Args:
            run_id: The run.
            digest: Hex digits of the file's SHA-256.
            user_id: The run's owner.

        Raises:
            NotFound: no step of the run made such a file.
            Unavailable: see :meth:`state`.
        """
        with _of_this_version():
            events = await self._events(run_id, user_id)
        for event in events:
            for file in event.step_finished.result.files:
                if file.digest == f"sha256:{digest}":
                    return file
        raise NotFound("This run has no such file.", reason="FILE_NOT_FOUND")

    async def request(self, run_id: UUID, user_id: str) -> AgentRequest:
        """The request that a run of the user's was accepted with."""
        feed = self._feed_of(run_id)
        first = feed.events[0] if feed else await self._runs.of(user_id).first_event(run_id)
        return first.run_accepted.request

    async def look(self) -> None:
        """Read the progress of runs that are driven elsewhere and followed here, in one query."""
        if not self._followed:
            return
        self._round += 1
        all_followed = list(self._followed.values())
        progress: dict[UUID, asyncpg.Record] = {}
        try:
            progress = await self._runs.progress([followed.run_id for followed in all_followed])
        finally:  # also without an answer: reading will say why
            for followed in all_followed:
                found = progress.get(followed.run_id)
                if found is None or found != followed.seen:
                    followed.seen = found
                    self._notifications.wake(followed.run_id)
                if found and found["driven"] and self._round % _FOLLOW_AGAIN == 0:
                    self._notifications.follow(followed.run_id)

    async def _events(self, run_id: UUID, user_id: str) -> Sequence[LogEvent]:
        feed = self._feed_of(run_id)
        return feed.events if feed else await self._runs.of(user_id).log(run_id)

    @contextmanager
    def _feed(self, run_id: UUID, user_id: str, after_sequence: int) -> Iterator[RunFeed]:
        """The feed of a run of the user's, for the length of the block.

        Of a run that is driven elsewhere it begins behind ``after_sequence``, or further on if
        others follow the run already. It is closed at the run's end, when the run comes to be
        driven here, and when it cannot be read.
        """
        if (feed := self._feed_of(run_id)) is not None:
            yield feed
            return
        followed = self._followed.get((run_id, user_id))
        if followed is None:
            followed = _Followed(run_id, user_id, RunFeed(before=after_sequence))
            self._followed[run_id, user_id] = followed
            followed.task = asyncio.create_task(self._read(followed), name=f"follow {run_id}")
        followed.followers += 1
        try:
            yield followed.feed
        finally:
            followed.followers -= 1
            if not followed.followers and followed.task is not None:
                followed.task.cancel()
                self._forget(followed)

    async def _read(self, followed: _Followed) -> None:
        """Read the run until its end, or until it is driven here."""
        run_id, error = followed.run_id, None
        wait_s: float | None = _LOOK_AGAIN_S
        try:
            while not self._stopping and self._feed_of(run_id) is None:
                news = self._notifications.news(run_id)
                if await self._read_on(followed):
                    break
                if wait_s is not None:  # the first time: its owner does not know who follows
                    self._notifications.follow(run_id)
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await news.wait()
                wait_s = None
        except Exception as reason:  # every error is passed on to its followers
            error = reason
        self._forget(followed)
        followed.feed.close(error)

    async def _read_on(self, followed: _Followed) -> bool:
        """Show what there is now; whether the run has ended."""
        feed, runs = followed.feed, self._runs.of(followed.user_id)
        look = Look(more=True)
        while look.more:
            attempt, _, text = feed.answer
            look = await runs.look(followed.run_id, feed.last_sequence, attempt, len(text))
            feed.publish([event for _, event in look.events])
            feed.forget(feed.last_sequence - _HELD_EVENTS)
            if look.text:
                feed.resume(look.attempt, look.started_at, look.text)
            if any(event.HasField("run_adopted") for _, event in look.events):
                self._notifications.follow(followed.run_id)  # nor does a new owner
        return look.finished

    def _forget(self, followed: _Followed) -> None:
        key = (followed.run_id, followed.user_id)
        if self._followed.get(key) is followed:
            del self._followed[key]


def is_end(shown: LogEvent | Piece) -> TypeIs[LogEvent]:
    """Whether it is the run's end."""
    return not isinstance(shown, Piece) and shown.HasField("run_finished")


@contextmanager
def _of_this_version() -> Iterator[None]:
    try:
        yield
    except UnknownEvent:
        raise Unavailable(
            "A newer version of the service works on this run; ask again.",
            reason="NEWER_VERSION",
            retry_after_s=1.0,
        ) from None


def unavailable() -> Unavailable:
    """Error of a replica that takes no runs and shows none."""
    return Unavailable("This replica cannot take or follow runs now; ask again.", retry_after_s=0.5)
