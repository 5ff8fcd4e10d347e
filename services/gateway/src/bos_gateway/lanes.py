"""Group commit over sessions of their own, so that nothing slow holds up what is beside it.

A :class:`Lane` writes everything that is pending in one statement, and then what came meanwhile.
What it cannot write soon, because somebody else has locked a run's row or a statement ran into its
time-out, goes to the :class:`SlowLane`, where every run is by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import asyncpg

from bos_chassis.errors import BosError, Unavailable
from bos_gateway.log_items import Append, NewRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Self
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    Session = asyncpg.Connection[asyncpg.Record]
    OpenSession = Callable[[], AbstractAsyncContextManager[Session]]
    Write = Callable[[Session, Sequence["Pending"]], Awaitable[Sequence["Pending"]]]

_RETRY_FIRST_S: Final = 0.05
_RETRY_MAX_S: Final = 0.5
_MAX_BATCH: Final = 512
_MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
# A lone run whose statement is cancelled for its time-out this often is not written any more. The
# locks of others pass, however long they last.
_TIME_OUTS: Final = 6
# What is slow by itself would hold up others with each of its events.
_APART_S: Final = 60.0

_SLOW = (
    asyncpg.QueryCanceledError,
    asyncpg.LockNotAvailableError,
    asyncpg.DeadlockDetectedError,
)
# What a lost session, a restart, a full disk or a failover looks like: it passes, and until it does
# nothing can be promised to anybody. What is none of these no repetition mends.
_PASSING = (
    asyncpg.InsufficientResourcesError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.PostgresConnectionError,
    asyncpg.InternalClientError,  # what a session that is cut off between two messages looks like
    asyncpg.OperatorInterventionError,
    asyncpg.CannotConnectNowError,
    Unavailable,
    OSError,  # a TimeoutError is one
)


class LogRefused(BosError):
    """PostgreSQL refused to store events for a reason that repeating does not mend."""

    code = Unavailable.code
    default_reason = "RUN_LOG_REFUSED"


class StoreFull(LogRefused):
    """PostgreSQL has no room left; operators see it in the log and by ``bos doctor``."""

    default_reason = "RUN_LOG_FULL"


@dataclass(slots=True)
class Pending:
    """Something to be written, and who waits for that."""

    item: NewRun | Append
    done: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    settled: bool = False
    """Whether the outcome is known, also when nobody waits for it any more."""

    def settle(self, outcome: bool | BaseException) -> None:
        """Tell whoever waits; they may have given up meanwhile."""
        self.settled = True
        if self.done.done():
            return
        if isinstance(outcome, BaseException):
            self.done.set_exception(outcome)
            self.done.exception()  # looked at, also if nobody waits
        else:
            self.done.set_result(outcome)


class _Trouble(Enum):
    PASSING = "passing"
    SLOW = "slow"
    REFUSED = "refused"


class _OneSession:
    """A session that is opened when it is needed and opened again when it was lost."""

    def __init__(self, open_session: OpenSession, log: FilteringBoundLogger) -> None:
        self._open = open_session
        self._log = log
        self._stack = AsyncExitStack()
        self._session: Session | None = None

    async def open(self) -> Session:
        """The session.

        Raises:
            BosError: the server is away, or refuses us.
        """
        if self._session is None or self._session.is_closed():
            await self.close()
            self._session = await self._stack.enter_async_context(self._open())
        return self._session

    async def ready(self) -> Session:
        """The session; whatever keeps us from one passes, also a password that is being changed.

        Raises:
            Unavailable: there is none now.
        """
        try:
            return await self.open()
        except (BosError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise Unavailable("No session for the run log.") from error

    async def close(self) -> None:
        """End the session, if there is one."""
        self._session = None
        await self._stack.aclose()

    async def judge(self, error: Exception) -> _Trouble:
        """What an error of a statement means; ends the session if nothing is known of it."""
        if isinstance(error, _SLOW):
            return _Trouble.SLOW
        closed = self._session is None or self._session.is_closed()
        if isinstance(error, _PASSING) or (closed and isinstance(error, asyncpg.InterfaceError)):
            if not isinstance(error, asyncpg.InsufficientResourcesError):  # that is an answer
                await self.close()
            return _Trouble.PASSING
        self._log.error("log write refused", error=type(error).__name__, exc_info=error)
        return _Trouble.REFUSED


class Lane:
    """Writes what is pending, all of it in one statement, one statement after the other.

    An async context manager; leaving it drops what is pending.

    Args:
        open_session: Opens its session.
        write: Writes a batch and settles what it knows the outcome of; returns what has to be
            written elsewhere because its rows are locked.
        stuck: Given what could not be written soon.
        log: For what goes wrong.
        singly: Whether what is slow together is tried one by one before it counts as stuck.
    """

    def __init__(
        self,
        open_session: OpenSession,
        write: Write,
        stuck: Callable[[Sequence[Pending]], None],
        log: FilteringBoundLogger,
        *,
        singly: bool = False,
    ) -> None:
        self._session = _OneSession(open_session, log)
        self._write = write
        self._stuck = stuck
        self._log = log
        self._singly = singly
        self._closed = False
        self._pending: deque[Pending] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._session.open()
        self._task = asyncio.create_task(self._write_for_ever(), name="run-log-writer")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._closed = True
        for pending in self._pending:
            pending.settle(shutting_down())
        await self._session.close()

    def put(self, pending: Pending) -> None:
        """Write this after all that was put here before."""
        if self._closed:
            pending.settle(shutting_down())
            return
        self._pending.append(pending)
        self._wake.set()

    def take_out(self, run_id: UUID) -> list[Pending]:
        """What is still to be written of one run; it is no longer written here."""
        found = [each for each in self._pending if each.item.run_id == run_id]
        if found:
            self._pending = deque(each for each in self._pending if each.item.run_id != run_id)
        return found

    async def _write_for_ever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = take_batch(self._pending)
                try:
                    await self._store(batch)
                except asyncio.CancelledError:
                    for pending in batch:
                        pending.settle(shutting_down())
                    raise

    async def _store(self, batch: Sequence[Pending]) -> None:
        """Repeat the write until all is settled, or handed on: event ids make that harmless."""
        wait_s = _RETRY_FIRST_S
        while left := [each for each in batch if not each.settled]:
            try:
                elsewhere = await self._write(await self._session.ready(), left)
            except Exception as error:
                match await self._session.judge(error):
                    case _Trouble.PASSING:
                        self._log.warning("log write failed", error=type(error).__name__)
                        if isinstance(error, asyncpg.DiskFullError):
                            self._refuse_new(left)
                        await asyncio.sleep(wait_s)
                        wait_s = min(wait_s * 2, _RETRY_MAX_S)
                    case _Trouble.REFUSED if len(left) == 1:
                        left[0].settle(LogRefused("The run could not be stored."))
                    case _Trouble.SLOW if len(left) == 1 or not self._singly:
                        self._stuck(left)
                        return
                    case _:
                        await self._store_singly(left)
                        return
            else:
                if elsewhere:
                    self._stuck(elsewhere)
                    return

    async def _store_singly(self, batch: Sequence[Pending]) -> None:
        """Write each by itself, so that nobody else's events go down with one that is refused."""
        handed_on: set[UUID] = set()
        for each in batch:
            run_id = each.item.run_id
            if run_id in handed_on:  # what follows of a run goes where the first of it went
                self._stuck([each])
                continue
            await self._store([each])
            if not each.settled:
                handed_on.add(run_id)

    def _refuse_new(self, left: Sequence[Pending]) -> None:
        """Runs under way wait for room; a question that nobody waits for yet need not."""
        for each in (*left, *self._pending):
            if isinstance(each.item, NewRun):
                each.settle(StoreFull("No question can be stored at the moment; try again later."))


class SlowLane:
    """Runs that would hold up others: each is written by itself, and waits by itself.

    An async context manager; leaving it drops what is pending.

    Args:
        open_session: Opens its session, which is only there while it is needed.
        write: As for a lane; what it returns is tried again.
        log: For what goes wrong.
    """

    def __init__(self, open_session: OpenSession, write: Write, log: FilteringBoundLogger) -> None:
        self._session = _OneSession(open_session, log)
        self._turn = asyncio.Lock()
        self._write = write
        self._log = log
        self._pending: dict[UUID, deque[Pending]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._apart_until: dict[UUID, float] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pending in self._pending.values():
            for each in pending:
                each.settle(shutting_down())
        await self._session.close()

    def holds(self, run_id: UUID) -> bool:
        """Whether more of the run must be written here, too."""
        return run_id in self._pending or self._apart_until.get(run_id, 0.0) > time.monotonic()

    def put(self, pending: Pending) -> None:
        """Write this after all that was put here before of the same run."""
        run_id = pending.item.run_id
        if self._closed:
            pending.settle(shutting_down())
            return
        if run_id in self._pending:
            self._pending[run_id].append(pending)
            return
        self._pending[run_id] = deque([pending])
        task = asyncio.create_task(self._write_run(run_id), name=f"slow {run_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write_run(self, run_id: UUID) -> None:
        pending, wait_s, time_outs = self._pending[run_id], _RETRY_FIRST_S, 0
        try:
            while pending:
                before = len(pending)
                try:
                    async with self._turn:
                        batch = take_batch(deque(pending))
                        if await self._write(await self._session.ready(), batch):
                            self._keep_apart(run_id)
                except Exception as error:
                    trouble = await self._session.judge(error)
                    if trouble is _Trouble.SLOW:
                        self._keep_apart(run_id)
                    time_outs += isinstance(error, asyncpg.QueryCanceledError)
                    if trouble is _Trouble.REFUSED or time_outs >= _TIME_OUTS:
                        # Nothing behind it can be written either.
                        for each in pending:
                            each.settle(LogRefused("The run could not be stored."))
                while pending and pending[0].settled:
                    pending.popleft()
                if len(pending) < before:
                    wait_s, time_outs = _RETRY_FIRST_S, 0
                elif pending:
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 2, _RETRY_MAX_S)
        finally:
            for each in pending:
                each.settle(shutting_down())
            del self._pending[run_id]
            async with self._turn:
                if not self._pending:
                    await self._session.close()

    def _keep_apart(self, run_id: UUID) -> None:
        now = time.monotonic()
        self._apart_until = {r: until for r, until in self._apart_until.items() if until > now}
        self._apart_until[run_id] = now + _APART_S


def take_batch(pending: deque[Pending]) -> list[Pending]:
    """What may share a statement, in order, taken out; bounded by number and bytes.

    Of a run only what follows on one another at one epoch: the statement fences each run once, and
    an append of an earlier epoch must not be let through by a later one beside it.
    """
    batch: list[Pending] = []
    ends: dict[UUID, tuple[int, int]] = {}
    size = 0
    while pending and len(batch) < _MAX_BATCH:
        item = pending[0].item
        if isinstance(item, Append):
            follows = (item.epoch, item.first_sequence - 1)
            if ends.get(item.run_id, follows) != follows:
                break
            ends[item.run_id] = (item.epoch, item.last_sequence)
        size += item.size
        if batch and size > _MAX_BATCH_BYTES:
            break
        batch.append(pending.popleft())
    return batch


def shutting_down() -> Unavailable:
    """What those hear whose writes are given up at the end of the process."""
    return Unavailable("The service is shutting down.", retry_after_s=1.0)
