"""Runs that other replicas drive, followed here: each is read once, however many follow it.

A run is read when its owner says that there is more, or when the query that asks once a second how
far all of them have got says so. One that waits costs nothing but its place in that query.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bos_gateway.feed import RunFeed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    import asyncpg

    from bos_gateway.bulletin import Bulletin
    from bos_gateway.runs import Runs

_FOLLOW_AGAIN_S = 5.0
# A run may end before its owner hears that it is followed.
_LOOK_AGAIN_S = 0.1
# Who is further behind reads the log; these are held once for everybody who keeps up.
_HELD_EVENTS = 64


@dataclass(slots=True, eq=False)
class _Followed:
    run_id: UUID
    user_id: str
    feed: RunFeed
    news: asyncio.Event = field(default_factory=asyncio.Event)
    followers: int = 0
    task: asyncio.Task[None] | None = None
    seen: asyncpg.Record | None = None
    told_owner: float = 0.0


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

    async def look(self) -> None:
        """Ask how far the followed runs have got, all of them in one query."""
        if not self._followed:
            return
        all_followed = list(self._followed.values())
        progress: dict[UUID, asyncpg.Record] = {}
        try:
            progress = await self._runs.progress([followed.run_id for followed in all_followed])
        finally:  # also without an answer: reading will say why
            for followed in all_followed:
                found = progress.get(followed.run_id)
                if found is None or found != followed.seen:
                    followed.seen = found
                    followed.news.set()
                elif found["driven"]:
                    self._tell_owner(followed)

    async def _read(self, followed: _Followed) -> None:
        """Read the run until its end, or until it is driven here."""
        error: Exception | None = None
        try:
            with self._bulletin.reading(followed.run_id, followed.news):
                while not (self._stopping or self._drives(followed.run_id)):
                    followed.news.clear()
                    finished, told = await self._read_on(followed)
                    if finished:
                        break
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_AGAIN_S if told else None):
                            await followed.news.wait()
        except Exception as reason:  # whatever it is, its followers are told
            error = reason
        self._forget(followed)
        followed.feed.close(error)

    async def _read_on(self, followed: _Followed) -> tuple[bool, bool]:
        """Show what there is now; whether the run has ended, and whether its owner was told."""
        feed, runs = followed.feed, self._runs.of(followed.user_id)
        more = True
        while more:
            attempt, _, text = feed.answer
            look = await runs.look(followed.run_id, feed.last_sequence, attempt, len(text))
            feed.publish([event for _, event in look.events])
            feed.forget(feed.last_sequence - _HELD_EVENTS)
            if look.text:
                feed.resume(look.attempt, look.started_at, look.text)
            if any(event.HasField("run_adopted") for _, event in look.events):
                followed.told_owner = 0.0  # the new one does not know who follows
            more = look.more
        return look.finished, look.driven and self._tell_owner(followed)

    def _tell_owner(self, followed: _Followed) -> bool:
        now = time.monotonic()
        due = now >= followed.told_owner + _FOLLOW_AGAIN_S
        if due:
            followed.told_owner = now
            self._bulletin.follow(followed.run_id)
        return due

    def _forget(self, followed: _Followed) -> None:
        key = (followed.run_id, followed.user_id)
        if self._followed.get(key) is followed:
            del self._followed[key]
