"""Group commit in lanes, so that a slow or locked run does not delay the others.

A :class:`Lane` writes everything that is pending in one statement, and then what came meanwhile. A
run whose row is locked elsewhere waits for its turn by itself; one whose statement is slow is
written in a lane apart, over another session.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import asyncpg
from attrs import define, field

from bos_chassis.backoff import Backoff
from bos_errors import BosError, Unavailable
from bos_gateway.run_log.records import Append, NewRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from prometheus_client import Counter
    from structlog.typing import FilteringBoundLogger

    from bos_gateway.run_log.statements import Session

Item = TypeVar("Item", NewRun, Append)

_RETRY: Final = Backoff(first_s=0.05, cap_s=0.5)
_MAX_BATCH: Final = 512
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
# A lone run whose statement is cancelled for its time-out this often is not written any more. The
# locks of others pass, however long they last.
_TIME_OUTS: Final = 6
# What is slow by itself would hold up others with each of its events.
_APART_S: Final = 60.0

_SLOW = (asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError)
# What a lost session, a restart, a full disk or a failover looks like: it passes, and until it does
# nothing can be promised to any client. What is none of these no repetition mends.
_PASSING = (
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,  # what a session that is cut off between two messages looks like
    asyncpg.OperatorInterventionError,
    OSError,  # a TimeoutError is one
)


class LogRefused(BosError):
    """PostgreSQL refused to store events for a reason that a retry does not fix."""

    code = Unavailable.code
    default_reason = "RUN_LOG_REFUSED"


class StoreFull(LogRefused):
    """PostgreSQL has no room left; operators see it in the log and by ``bos doctor``."""

    default_reason = "RUN_LOG_FULL"


@define(eq=False)
class Pending(Generic[Item]):
    """Something to be written, and who waits for that."""

    item: Item
    done: asyncio.Future[bool] = field(
        init=False, factory=lambda: asyncio.get_running_loop().create_future()
    )
    settled: bool = field(init=False, default=False)
    """Whether the outcome is known, also when no caller waits for it any more."""

    def settle(self, outcome: bool | BaseException) -> None:
        """Settle the caller's future; the caller may have given up meanwhile."""
        self.settled = True
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
            self.done.exception()  # looked at, also if no caller waits
        else:
            self.done.set_result(outcome)


@define(eq=False)
class _Queue(Generic[Item]):
    """What is pending of one run, in the order in which it is to be written."""

    alone: bool
    """Whether each of it gets a statement of its own."""
    pending: list[Pending[Item]] = field(init=False, factory=list)
    waits: bool = field(init=False, default=False)
    """Whether it is not to be tried now."""
    put_off: int = field(init=False, default=0)
    """How often in a row it was put off."""
    time_outs: int = field(init=False, default=0)

    def left(self) -> bool:
        """Whether anything is left, once what is settled is forgotten."""
        while self.pending and self.pending[0].settled:
            del self.pending[0]
            self.put_off, self.time_outs = 0, 0
        return bool(self.pending)

    def next(self) -> list[Pending[Item]]:
        """Items that may share a statement: of a run, only successive ones of one epoch.

        The statement fences each run once, and an append of an earlier epoch must not be let
        through by a later one beside it.
        """
        found: list[Pending[Item]] = []
        for each in self.pending:
            if found and (self.alone or not each.item.follows(found[-1].item)):
                break
            found.append(each)
        return found


@define(eq=False)
class Lane(Generic[Item]):
    """Writes what is pending, all of it in one statement, one statement after the other."""

    _open: Callable[[], AbstractAsyncContextManager[Session]]
    _write: Callable[[Session, Sequence[Pending[Item]]], Awaitable[None]]
    """Writes a batch and settles what it knows the outcome of; what it leaves is tried again."""
    _log: FilteringBoundLogger
    _aside: Lane[Item] | None = None
    """Where runs are written whose statements are slow; else they stay, each by itself."""
    _apart: bool = False
    """Whether each run is by itself, over a session that is only there while it is needed."""
    _failed_writes: Counter | None = None
    """Counts writes that failed, by outcome."""
    _queues: dict[UUID, _Queue[Item]] = field(init=False, factory=dict)
    _slow: dict[UUID, asyncio.TimerHandle] = field(init=False, factory=dict)
    """Runs that are written here for a while yet, also if nothing of them is pending."""
    _wake: asyncio.Event = field(init=False, factory=asyncio.Event)
    _failures: int = field(init=False, default=0)
    """Statements or sessions that failed in a row."""
    _closed: bool = field(init=False, default=False)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write until the block is left; that drops what is pending."""
        writing = asyncio.create_task(self._write_pending(), name="run-log-writer")
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            self._closed = True
            for each in self._all():
                each.settle(_shutting_down())

    def put(self, pending: Pending[Item]) -> None:
        """Write this after all that was put here before of the same run."""
        run_id = pending.item.run_id
        if self._aside is not None and self._aside._holds(run_id):
            self._aside.put(pending)
        elif self._closed:
            pending.settle(_shutting_down())
        else:
            self._queues.setdefault(run_id, _Queue(self._apart)).pending.append(pending)
            self._wake.set()

    def _all(self) -> Sequence[Pending[Item]]:
        return [each for queue in self._queues.values() for each in queue.pending]

    def _holds(self, run_id: UUID) -> bool:
        """Whether more of the run must be written here, too."""
        return run_id in self._queues or run_id in self._slow

    async def _write_pending(self) -> None:
        while True:
            batch = await self._next()
            try:
                async with self._open() as session:
                    while batch and not session.is_closed():
                        await self._store(session, batch)
                        batch = await self._next(unless_idle=self._apart)
            except Exception as error:
                # Every reason for having no session passes, also a password that is being changed.
                self._log.warning("log write failed", error=type(error).__name__)
                self._count("repeated")
                if isinstance(error, asyncpg.DiskFullError):
                    self._refuse_new()
                self._failures += 1
                await asyncio.sleep(_RETRY.delay(self._failures))

    async def _next(self, *, unless_idle: bool = False) -> Sequence[Pending[Item]]:
        """What the next statement is to write, once there is something."""
        while not (batch := self._take()) and (self._queues or not unless_idle):
            self._wake.clear()
            await self._wake.wait()
        return batch

    def _take(self) -> Sequence[Pending[Item]]:
        """What may share a statement now, bounded by number and bytes; it stays in its queues."""
        batch: list[Pending[Item]] = []
        size = 0
        for run_id, queue in list(self._queues.items()):
            if not queue.left():
                del self._queues[run_id]
            elif not queue.waits and not (batch and queue.alone):
                for each in queue.next():
                    size += each.item.size
                    if batch and (len(batch) == _MAX_BATCH or size > _MAX_BATCH_BYTES):
                        return batch
                    batch.append(each)
                if queue.alone:
                    break
        return batch

    async def _store(self, session: Session, batch: Sequence[Pending[Item]]) -> None:
        """Try to write a batch.

        Raises:
            Exception: it passes. Event ids make it harmless to repeat what was written after all.
        """
        runs = dict.fromkeys(each.item.run_id for each in batch)
        try:
            await self._write(session, batch)
        except Exception as error:
            passes = isinstance(error, _PASSING) and not isinstance(error, _SLOW)
            if passes or session.is_closed():
                raise
            self._failed(batch, error)
        else:
            for run_id in runs:
                queue = self._queues[run_id] = self._queues.pop(run_id)  # behind all others
                if not queue.pending[0].settled:
                    self._put_off(run_id)
        self._failures = 0

    def _failed(self, batch: Sequence[Pending[Item]], error: Exception) -> None:
        """Isolate the run that fails, so that events of other runs are stored."""
        runs = {each.item.run_id for each in batch}
        slow = isinstance(error, _SLOW)
        if not slow:
            self._log.error("log write refused", error=type(error).__name__, exc_info=error)
            self._count("refused")
        if slow and self._aside is not None:
            for run_id in runs:
                queue = self._aside._queues[run_id] = self._queues.pop(run_id)
                queue.alone = True
            self._aside._wake.set()
        elif len(batch) > 1:
            for run_id in runs:
                self._queues[run_id].alone = True
        elif not slow:
            batch[0].settle(LogRefused("The run could not be stored."))
        elif isinstance(batch[0].item, NewRun):
            batch[0].settle(LogRefused("The question could not be stored in time; try again."))
        else:
            self._slow_by_itself(batch[0].item.run_id, error)

    def _slow_by_itself(self, run_id: UUID, error: Exception) -> None:
        if run_id in self._slow:
            self._slow.pop(run_id).cancel()
        loop = asyncio.get_running_loop()
        self._slow[run_id] = loop.call_later(_APART_S, self._slow.pop, run_id)
        self._put_off(run_id)
        queue = self._queues[run_id]
        queue.time_outs += isinstance(error, asyncpg.QueryCanceledError)
        if queue.time_outs >= _TIME_OUTS:
            for each in queue.pending:  # nothing behind it can be written either
                each.settle(LogRefused("The run could not be stored."))

    def _count(self, outcome: str) -> None:
        if self._failed_writes is not None:
            self._failed_writes.labels(outcome).inc()

    def _put_off(self, run_id: UUID) -> None:
        """Try the run again a little later."""
        queue = self._queues[run_id] = self._queues.pop(run_id)  # behind all others
        if not queue.put_off:
            self._log.warning("run written separately, its row is locked or slow", run=str(run_id))
        queue.waits = True
        queue.put_off += 1
        wait_s = _RETRY.delay(queue.put_off)
        asyncio.get_running_loop().call_later(wait_s, self._try_again, queue)

    def _try_again(self, queue: _Queue[Item]) -> None:
        queue.waits = False
        self._wake.set()

    def _refuse_new(self) -> None:
        """Refuse new runs while PostgreSQL is full; running ones wait for room."""
        for each in self._all():
            if isinstance(each.item, NewRun):
                each.settle(StoreFull("No question can be stored at the moment; try again later."))


def _shutting_down() -> Unavailable:
    """Error of writes that are abandoned at shutdown."""
    return Unavailable("The service is shutting down.", retry_after_s=1.0)
