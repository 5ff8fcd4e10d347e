"""Events that PostgreSQL has committed but may still forget.

A commit that does not wait for the disk is lost when PostgreSQL itself crashes, though its events
may have been shown by then. They are kept here until they are known to be on disk, so that the
writer can write them again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from bos.gateway.v1 import RunStatus
    from bos.runlog.v1 import LogEvent
    from bos_gateway.run_log import Append


class Row(NamedTuple):
    """One event as it stands in the log."""

    run_id: UUID
    sequence: int
    event_id: UUID
    epoch: int
    event: LogEvent


@dataclass(frozen=True, slots=True)
class RunTail:
    """The events of one run that are not known to be on disk, oldest first."""

    rows: Sequence[Row]
    status: RunStatus | None
    """The run's status after them, if one of them changed it."""

    @property
    def run_id(self) -> UUID:
        """The run."""
        return self.rows[0].run_id

    @property
    def epoch(self) -> int:
        """The epoch under which the run is ours now; earlier events may have earlier ones."""
        return self.rows[-1].epoch


@dataclass(slots=True)
class _Commit:
    items: Sequence[Append]
    position: int | None = None
    """A position in the write-ahead log behind this commit, once one is known."""


class UnflushedTail:
    """The commits of one writer that did not wait for the disk, oldest first.

    Positions are bytes in PostgreSQL's write-ahead log; they are compared within one session only,
    because after a lost session everything is written again and flushed.

    Args:
        limit: Events from which on the next commit should wait for the disk.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._commits: deque[_Commit] = deque()
        self._events = 0

    def __len__(self) -> int:
        return self._events

    @property
    def full(self) -> bool:
        """Whether it is time to wait for the disk, so that no more need be kept."""
        return self._events >= self._limit

    def committed(self, items: Sequence[Append]) -> None:
        """These were committed without waiting for the disk."""
        self._commits.append(_Commit(items))
        self._events += sum(len(item.events) for item in items)

    def flushed(self) -> None:
        """A commit that waited for the disk took everything before it along."""
        self._commits.clear()
        self._events = 0

    def observed(self, inserted: int, flushed: int) -> None:
        """A later statement saw the log end at ``inserted``, and on disk up to ``flushed``."""
        for commit in reversed(self._commits):
            if commit.position is not None:
                break
            commit.position = inserted
        while self._commits:
            position = self._commits[0].position
            if position is None or position > flushed:
                break
            gone = self._commits.popleft()
            self._events -= sum(len(item.events) for item in gone.items)

    def by_run(self) -> list[RunTail]:
        """Everything that may have to be written again, in the order of each run's log."""
        items: dict[UUID, list[Append]] = {}
        for commit in self._commits:
            for item in commit.items:
                items.setdefault(item.run_id, []).append(item)
        return [_run_tail(found) for found in items.values()]


def chunks(tails: Sequence[RunTail], limit: int) -> Iterator[list[RunTail]]:
    """The tails in groups of about ``limit`` events; a run is never split."""
    chunk: list[RunTail] = []
    size = 0
    for tail in tails:
        chunk.append(tail)
        size += len(tail.rows)
        if size >= limit:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _run_tail(items: Sequence[Append]) -> RunTail:
    status = None
    for item in items:
        status = item.status or status
    return RunTail([row for item in items for row in item.rows()], status)
