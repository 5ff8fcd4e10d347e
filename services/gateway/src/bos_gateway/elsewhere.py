"""Runs that other replicas drive, followed here: each is read once, however many follow it.

One query a second asks how far all of them have got; a run is read when that or its owner says that
there is more. So a run that waits costs nothing but its place in that query.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bos_gateway.bulletin import POLL_S
from bos_gateway.feed import RunFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    from bos.runlog.v1 import LogEvent
    from bos_gateway.bulletin import Bulletin
    from bos_gateway.runs import Progress, Runs

_FIRST_POLL_S = 0.05
_FOLLOW_AGAIN_S = 5.0
# Who is further behind than this reads the log; it is held once for everybody who keeps up.
_HELD_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class _Followed:
    run_id: UUID
    user_id: str
    feed: RunFeed
    news: asyncio.Event
    followers: int = 0
    task: asyncio.Task[None] | None = None
    seen: Progress | None = None
    looked: int = 0
    """How often its progress was asked for in vain under its present owner. At first that is done
    more often: a run may end before its owner hears that it is followed."""
    due: float = 0.0
    said: float = 0.0
    held: deque[int] = field(default_factory=deque)
    """Sizes of the events in the feed."""

    def later(self, now: float) -> None:
        """Set when to ask next: soon at first, then together with all others."""
        wait_s = _FIRST_POLL_S * 2.0 ** min(self.looked, 10)
        self.looked += 1
        self.due = now + wait_s if wait_s < POLL_S else (now // POLL_S + 1) * POLL_S

    def show(self, events: Sequence[LogEvent]) -> None:
        """Show what was read, and hold no more than what those who keep up need."""
        self.feed.publish(events)
        self.held.extend(event.ByteSize() for event in events)
        total, gone = sum(self.held), 0
        while total > _HELD_BYTES:
            total -= self.held.popleft()
            gone += 1
        self.feed.forget(self.feed.last_sequence - len(self.held))


class Elsewhere:
    """Feeds of runs that are driven elsewhere.

    Args:
        runs: The stored logs.
        bulletin: What the other replicas say, and are told.
        drives: Whether a run is driven here, and so has a feed of its own.
    """

    def __init__(self, runs: Runs, bulletin: Bulletin, drives: Callable[[UUID], bool]) -> None:
        self._runs = runs
        self._bulletin = bulletin
        self._drives = drives
        # By user as well: what one was allowed to read is shown to nobody else.
        self._followed: dict[tuple[UUID, str], _Followed] = {}
        self._begun = asyncio.Event()
        self._stopping = False

    def stop(self) -> None:
        """Close all feeds, and those to come."""
        self._stopping = True
        for followed in self._followed.values():
            followed.news.set()

    @contextmanager
    def feed(self, run_id: UUID, user_id: str, after_sequence: int) -> Iterator[RunFeed]:
        """The feed of a run of the user's for the length of the block.

        It begins behind ``after_sequence``, or further on if others follow the run already. It is
        closed at the run's end, when the run comes to be driven here, and when it cannot be read.
        """
        key = (run_id, user_id)
        followed = self._followed.get(key)
        if followed is None:
            feed = RunFeed(before=after_sequence)
            followed = self._followed[key] = _Followed(run_id, user_id, feed, asyncio.Event())
            followed.task = asyncio.create_task(self._read(followed), name=f"follow {run_id}")
        followed.followers += 1
        try:
            yield followed.feed
        finally:
            followed.followers -= 1
            if not followed.followers and followed.task is not None:
                followed.task.cancel()
                self._forget(followed)

    async def look_for_ever(self) -> None:
        """Ask how far the followed runs have got, all that are due in one query."""
        while True:
            self._begun.clear()
            now = time.monotonic()
            due = {f.run_id: f for f in self._followed.values() if f.due <= now}
            if due:
                await self._look(due, now)
            wait_s = min((f.due - now for f in self._followed.values()), default=None)
            try:
                async with asyncio.timeout(wait_s):
                    await self._begun.wait()
            except TimeoutError:
                continue

    async def _look(self, due: dict[UUID, _Followed], now: float) -> None:
        for followed in due.values():
            followed.later(now)
        try:
            progress = await self._runs.progress(list(due))
        except BaseException:
            for followed in due.values():
                followed.news.set()  # and so learns why
            raise
        for run_id, followed in due.items():
            found = progress.get(run_id)
            if found is None or found != followed.seen:
                followed.seen = found
                followed.news.set()
            elif found.driven:
                self._tell_owner(followed, now)

    async def _read(self, followed: _Followed) -> None:
        """Read the run until its end, or until it is driven here."""
        feed = followed.feed
        error: Exception | None = None
        try:
            with self._bulletin.reading(followed.run_id, followed.news):
                while not (self._stopping or self._drives(followed.run_id)):
                    followed.news.clear()
                    if await self._read_on(followed):
                        break
                    await followed.news.wait()
        except Exception as reason:  # whatever it is, its followers are told
            error = reason
        self._forget(followed)
        feed.close(error)

    async def _read_on(self, followed: _Followed) -> bool:
        """Show what there is now; whether the run has ended."""
        feed, runs = followed.feed, self._runs.of(followed.user_id)
        while True:
            attempt, _, text = feed.answer
            look = await runs.look(followed.run_id, feed.last_sequence, attempt, len(text))
            followed.show([event for _, event in look.events])
            if look.text:
                feed.resume(look.attempt, look.started_at, look.text)
            if any(event.HasField("run_adopted") for _, event in look.events):
                # The new owner does not know who follows.
                followed.looked, followed.said, followed.due = 0, 0.0, 0.0
            if not look.more:
                break
        if not look.finished and not followed.due:
            followed.later(time.monotonic())
            self._begun.set()
        if look.driven:
            self._tell_owner(followed, time.monotonic())
        return look.finished

    def _tell_owner(self, followed: _Followed, now: float) -> None:
        if now >= followed.said + _FOLLOW_AGAIN_S:
            followed.said = now
            self._bulletin.follow(followed.run_id)

    def _forget(self, followed: _Followed) -> None:
        key = (followed.run_id, followed.user_id)
        if self._followed.get(key) is followed:
            del self._followed[key]
