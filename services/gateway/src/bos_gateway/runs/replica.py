"""Runs of this process: accepted, adopted, driven, released."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import define, field
from google.protobuf.message import DecodeError

from bos.gateway.v1 import RUN_STATUS_FAILED
from bos.runlog.v1 import CancelRequested, LogEvent, RunAdopted, RunReleased
from bos_errors import DeadlineExceeded, ResourceExhausted, Unavailable
from bos_gateway.admission.accept import Asked, Repeated
from bos_gateway.core.fold import apply, fold
from bos_gateway.core.run_state import RunState, UnknownEvent
from bos_gateway.ownership import poison
from bos_gateway.ownership.clock import monotonic
from bos_gateway.ownership.owners import Adopted, Look, Ownership
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.writer import LogWriter, LostRun
from bos_gateway.runs.feed import RunFeed
from bos_gateway.runs.follow import RunReader, unavailable
from bos_gateway.runs.orchestrator import Orchestrator
from bos_gateway.runs.trace_exports import TraceExports, export_run
from bos_postgres.audit import By

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from bos.gateway.v1 import AgentRequest
    from bos_gateway.admission.accept import Admission
    from bos_gateway.admission.memory import MemoryClient
    from bos_gateway.effects.context import Deps
    from bos_gateway.ownership.lease import Lease
    from bos_gateway.run_log.notifications import Notifications
    from bos_gateway.run_log.reader import Runs

# For what is written on shutdown; a database that is away must not delay it indefinitely.
_SHUTDOWN_TIMEOUT_S = 3.0
_RELEASE_S = 5.0
# Runs are with others by then; only the lease waits for it.
_FLUSH_S = 2.0
_RESUMED_AT_ONCE = 4
# What a newer replica, or some time, mends: counted as no failure.
_PASSING = (UnknownEvent, Unavailable, DeadlineExceeded)


@define(eq=False, repr=False)
class Replica:
    """Runs of this process: accepts, adopts, drives and releases them."""

    _writer: LogWriter
    _runs: Runs
    ownership: Ownership
    """Taking and freeing runs."""
    lease: Lease
    notifications: Notifications
    _deps: Deps
    _admission: Admission
    _memory: MemoryClient | None = None
    """Records turns and recalls facts about users; None for nothing."""
    reader: RunReader = field(init=False)
    """What runs look like, also those that others drive."""
    traces: TraceExports = field(init=False)
    """Of runs that ended on replicas that died."""
    stopping: bool = field(init=False, default=False)
    """Whether this process is shutting down: no run is accepted or adopted."""
    _suspended: bool = field(init=False, default=False)
    _gave_up_releasing: bool = field(init=False, default=False)
    _exported: bool = field(init=False, default=True)
    """Whether no trace is known to be unexported at shutdown."""
    _accepting: set[asyncio.Task[None]] = field(init=False, factory=set)
    _resuming: dict[asyncio.Task[None], Adopted] = field(init=False, factory=dict)
    _driven: dict[UUID, Orchestrator] = field(init=False, factory=dict)
    _turns: asyncio.Semaphore = field(init=False)
    # Secrets of runs stopped when the lease was lost, until those that are still ours are
    # driven again: without a key they are nowhere else.
    _set_aside: dict[UUID, Mapping[str, str]] = field(init=False, factory=dict)
    _log: FilteringBoundLogger = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.reader = RunReader(self._runs, self.notifications, self._feed_of)
        self.traces = TraceExports(self._runs, self._deps.telemetry)
        self._turns = asyncio.Semaphore(_RESUMED_AT_ONCE)
        self._log = self._deps.telemetry.logger("bos.gateway.replica")

    async def accept(
        self,
        request: AgentRequest,
        user_id: str,
        groups: Iterable[str] = (),
        *,
        interactive: bool,
        traceparent: str,
        own_trace: bool = False,
        by: By | None = None,
    ) -> UUID:
        """Store a run and start it, or find the one that this request already started.

        Raises:
            BosError: as :meth:`Admission.check`, :meth:`Admission.admit`, :meth:`Admission.store`.
            ResourceExhausted: too many runs are under way here.
            Unavailable: the replica is stopping.
        """
        started_by = by or By(user_id)
        asked = Asked(request, user_id, groups, interactive, traceparent, own_trace, started_by)
        admission = self._admission
        try:
            await admission.check(asked)
            self._require_room()
            run, secrets = await admission.admit(asked)
            with admission.tracing(run):
                run = await admission.recall(run)
                self._require_room()  # others may have taken it meanwhile; now it is taken
                await self._store(run, secrets)
        except Repeated as repeated:
            return repeated.run_id
        return run.run_id

    async def _store(self, run: NewRun, secrets: Mapping[str, str]) -> None:
        # A task of the replica's own: a caller who gives up now must not leave a run behind that
        # is stored and not driven. And a context of its own: the run outlives the call, so
        # neither that call's deadline nor its caller may leak into the run.
        task = asyncio.create_task(
            self._store_and_drive(run, secrets), context=contextvars.Context()
        )
        self._accepting.add(task)
        task.add_done_callback(self._accepted)
        await asyncio.shield(task)

    def _accepted(self, task: asyncio.Task[None]) -> None:
        self._accepting.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, also when its caller has left

    async def cancel(
        self, run_id: UUID, user_id: str, reason: str, by: By | None = None, *, owner: str = ""
    ) -> None:
        """Store a request to cancel the run, for its owner.

        The owner is named to the audit trail where another user asks for it.
        """
        event = LogEvent(cancel_requested=CancelRequested(user_id=user_id, reason=reason))
        actor, target = by or By(user_id), ("run.cancelled", str(run_id))
        entry = actor.entry(*target, owner=owner) if owner else actor.entry(*target)
        await self.ownership.add_input(run_id, "cancel", self._deps.clock.stamped(event), entry)
        await self.take_inputs()

    async def take_inputs(self) -> None:
        """Pass stored inputs of the runs driven here to their loops."""
        if self._driven:
            self._hand_over(await self.ownership.inputs(list(self._driven)))

    def _hand_over(self, inputs: Iterable[tuple[UUID, bytes]]) -> None:
        for run_id, payload in inputs:
            try:
                event = LogEvent.FromString(payload)
            except DecodeError:
                event = LogEvent()  # of no kind, as one of a newer version
            if driven := self._driven.get(run_id):
                driven.submit(event)

    def _feed_of(self, run_id: UUID) -> RunFeed | None:
        driven = self._driven.get(run_id)
        return driven.feed if driven else None

    def drives(self, run_id: UUID) -> bool:
        """Whether this replica drives the run."""
        return run_id in self._driven

    def answer(self, run_id: UUID) -> tuple[int, int, int, str] | None:
        """Epoch, and as :attr:`RunFeed.answer` the text, of a run that is under way here."""
        driven = self._driven.get(run_id)
        return (driven.adopted.epoch, *driven.feed.answer) if driven else None

    async def adopt(self, seen: Look) -> bool:
        """Take over runs without an owner, as far as there is room, and free those of the dead.

        Returns:
            Whether there were any: there may be more, once all others have had their share.
        """
        if self.stopping or self._suspended:
            return False
        buried, adopted = 0, list[Adopted]()
        if seen.dead and (judge_until := self.lease.others_judged_until()) is not None:
            buried = await self.ownership.bury(judge_until)
        if (seen.runs or buried) and (room := self._room()) > 0:
            suspects = {
                each.run_id for each in self._here() if each.failures >= poison.SUSPECT_FROM
            }
            adopted = await self.ownership.adopt(room, suspects)
            self._resume_all(adopted)
        self.traces.left_behind(await self.ownership.ended_last())
        if orphans := await self.ownership.release_orphans([each.run_id for each in self._here()]):
            self._log.warning("orphan runs released", runs=orphans)
        return bool(adopted)

    def _here(self) -> list[Adopted]:
        """The runs that are driven here, or will be."""
        return [*self._resuming.values(), *(each.adopted for each in self._driven.values())]

    async def take_lease(self) -> None:
        """Take a lease; runs that are still ours after an earlier one are driven on from the log.

        That they are is not waited for.

        Raises:
            BosError: the database is away; nothing has changed.
        """
        if self.stopping:
            return
        ours: list[Adopted] = []
        while not self.lease.held:  # taking it may last longer than it lives
            sent = monotonic()
            written_at, ours = await self.ownership.take()
            self.lease.taken(sent, written_at)
        self._suspended = False
        still_ours = self._set_aside.keys() & {adopted.run_id for adopted in ours}
        self._set_aside = {run_id: self._set_aside[run_id] for run_id in still_ours}
        self._resume_all(ours)

    async def suspend(self) -> None:
        """Stop driving: another replica may own the runs of this process by now."""
        if not self._suspended:
            self._suspended = True
            self._log.warning("lease lost, runs stopped", runs=len(self._driven))
        stopped = await self._stop_driving()
        self._set_aside |= {each.adopted.run_id: each.secrets for each in stopped}

    async def stop(self) -> None:
        """Stop driving, release every run, and send followers elsewhere.

        What cannot be released, because the database is away, is left to the replicas that adopt it
        once its lease has run out. Another call releases what was accepted after the first.
        """
        self.stopping = True
        self.reader.stop()
        stopped = await self._stop_driving()
        farewells = [each.release(self._release_event("drain")) for each in stopped]
        with suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_TIMEOUT_S):
                await asyncio.gather(*farewells, return_exceptions=True)
        if self._gave_up_releasing:
            return  # the first call has waited for the database long enough
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self.ownership.release_all()
            self._exported &= await self._deps.telemetry.flush(_FLUSH_S)
            async with asyncio.timeout(_RELEASE_S):
                await self.ownership.leave(exported=self._exported)
        except Exception as error:
            # After any error the process ends all the same.
            self._gave_up_releasing = True
            self._log.warning("runs not released", error=type(error).__name__, at=str(error))

    async def _stop_driving(self) -> list[Orchestrator]:
        """End every loop, and those of runs that are being accepted; returns what was stopped."""
        resuming = list(self._resuming)
        for task in resuming:
            task.cancel()
        stopped = await _stopped(self._driven.values())
        if beginning := {*resuming, *self._accepting}:
            await asyncio.wait(beginning, timeout=_SHUTDOWN_TIMEOUT_S)
            stopped += await _stopped(self._driven.values())
        return stopped

    def _release_event(self, reason: str) -> LogEvent:
        released = RunReleased(replica_id=str(self.ownership.replica_id), reason=reason)
        return self._deps.clock.stamped(LogEvent(run_released=released))

    async def _store_and_drive(self, run: NewRun, secrets: Mapping[str, str]) -> None:
        stored = await self._admission.store(run)
        state = fold(str(stored.run_id), [stored.event])
        self._drive(Adopted(stored.run_id, 1), state, [stored.event], secrets)

    def _resume_all(self, adopted: Sequence[Adopted]) -> None:
        """Resume these runs, each in a task of its own, so that none delays another."""
        if self.stopping or self._suspended:
            return
        for run in adopted:
            task = asyncio.create_task(self._resume(run), name=f"resume {run.run_id}")
            self._resuming[task] = run
            task.add_done_callback(self._resumed)

    def _resumed(self, task: asyncio.Task[None]) -> None:
        adopted = self._resuming.pop(task)
        if not task.cancelled():
            self._set_aside.pop(adopted.run_id, None)

    async def _resume(self, adopted: Adopted) -> None:
        try:
            if adopted.failures >= self._deps.settings.max_failures:
                await self._end_unread(adopted, poison.OWNERS_DIED)
            else:
                await self._take_up(adopted)
        except LostRun:
            self._log.info("run not adopted, it has another owner", run=str(adopted.run_id))
        except Exception as error:
            await self._release(adopted, error, taken_up=False)

    async def _take_up(self, adopted: Adopted) -> None:
        """Record the adoption, then drive the run from where its log ends."""
        run_id = adopted.run_id
        async with self._turns:
            events = await self._runs.log(run_id)
            state = fold(str(run_id), events)
        if state.finished:
            # Its end was sent before the lease was lost, and came to be written since.
            export_run(self._deps.telemetry, str(run_id), events)
            return
        # A drain may have had no time for a word in the log; it counts no failure either.
        released = not adopted.failures or events[-1].HasField("run_released")
        reason = adopted.reason or (poison.RELEASED if released else poison.LEASE_EXPIRED)
        adoption = RunAdopted(replica_id=str(self.ownership.replica_id), reason=reason)
        event = self._deps.clock.stamped(LogEvent(run_adopted=adoption))
        append = Append(run_id, adopted.epoch, state.last_sequence + 1, [event])
        await self._writer.append(append)  # outside of any turn: its row may be locked
        apply(state, event)
        async with self._turns:
            inputs = await self.ownership.inputs([run_id])
            secrets = self._set_aside.get(run_id, {})
            if state.request.secret_keys and not secrets:
                secrets = await self._deps.secrets.load(run_id)
        if former := self._driven.get(run_id):
            if former.adopted.epoch > adopted.epoch:
                return  # taken anew in the meantime
            # Lost without our knowing, and ours again.
            secrets = self._set_aside[run_id] = secrets or former.secrets
            await _stopped([former])
        self._deps.metrics.adopted.labels(reason).inc()
        self._log.info("run adopted", run=str(run_id), reason=reason)
        self.notifications.adopted(run_id)
        self._drive(adopted, state, [*events, event], secrets)
        self._hand_over(inputs)  # before the loop begins

    async def _end_unread(self, adopted: Adopted, error_type: str) -> None:
        """End a run that kills or fails each owner, without reading its log."""
        run_id, epoch = adopted.run_id, adopted.epoch
        self._log.error("run ended without reading its log", run=str(run_id), error=error_type)
        end = poison.ended_unread(str(run_id), error_type, adopted.failures)
        event, first = self._deps.clock.stamped(end), await self._runs.last_sequence(run_id) + 1
        await self._writer.append(
            Append(run_id, epoch, first, [event], status=RUN_STATUS_FAILED, finished=True)
        )
        self._deps.metrics.runs.labels("failed").inc()
        self.notifications.adopted(run_id)
        await self.traces.ended_unread(run_id, event)

    def _drive(
        self, adopted: Adopted, state: RunState, events: list[LogEvent], secrets: Mapping[str, str]
    ) -> None:
        """Start the loop of a run, unless it came too late: taken anew meanwhile, or at the end."""
        run_id = adopted.run_id
        former = self._driven.get(run_id)
        if self.stopping or (former is not None and former.adopted.epoch > adopted.epoch):
            return
        feed = RunFeed(
            events,
            window_s=self._deps.settings.delta_window_s,
            on_change=lambda text: self.notifications.shown(run_id, text=text),
        )
        lease = self.lease
        driven = Orchestrator(
            adopted, state, feed, secrets, self._writer, self._deps, lambda: lease.held
        )
        self._driven[run_id] = driven
        self._deps.metrics.active_runs.set(len(self._driven))
        driven.task = asyncio.create_task(self._driven_to_end(driven), name=f"run {run_id}")
        driven.task.add_done_callback(lambda _: self._drive_ended(driven))

    async def _driven_to_end(self, driven: Orchestrator) -> None:
        try:
            await self._driven_or_failed(driven)
            if driven.state.released:
                # An approval may have been decided just before the run was released.
                self.notifications.released.set()
        except Exception as error:
            if isinstance(error, UnknownEvent):
                with suppress(Exception):
                    await driven.release(self._release_event("unknown_event"))
            await self._release(driven.adopted, error)

    def _drive_ended(self, driven: Orchestrator) -> None:
        """Close the feed of a run whose loop has ended, and free its place.

        A task that is cancelled before it begins, as when a lease is lost at once, runs no
        ``finally``.
        """
        run_id, feed = driven.adopted.run_id, driven.feed
        if self._driven.get(run_id) is driven:
            del self._driven[run_id]
            self.notifications.forget(run_id)
        if self._memory is not None and feed.events[-1].HasField("run_finished"):
            self._memory.ended(run_id)
        self._deps.metrics.active_runs.set(len(self._driven))
        feed.close()
        if driven.adopted.failures >= poison.SUSPECT_FROM:
            self.notifications.released.set()  # the next suspect may be taken

    async def _driven_or_failed(self, driven: Orchestrator) -> None:
        """Drive a run; an unexpected error ends it."""
        try:
            await driven.drive()
        except (LostRun, *_PASSING):
            raise
        except Exception:
            self._log.exception("run crashed", run=str(driven.adopted.run_id))
            await driven.fail()

    async def _release(self, adopted: Adopted, error: Exception, *, taken_up: bool = True) -> None:
        """Release a run that failed here, for a later attempt on any replica; limited in number."""
        run_id = str(adopted.run_id)
        failed = not isinstance(error, _PASSING)
        unreadable = not (failed and taken_up)
        if isinstance(error, LostRun):
            # If it is still ours, its log has a hole, and only folding it anew can go on.
            self._deps.metrics.lost.inc()
            self._log.warning("run lost", run=run_id)
        elif failed:
            # Any other error concerns this run alone.
            self._log.error("run released after an error", run=run_id, exc_info=error)
        elif adopted.unreadable_s < poison.UNREADABLE_S:
            self._log.info("run postponed", run=run_id, error=type(error).__name__, at=str(error))
        else:
            try:
                with suppress(LostRun):
                    await self._end_unread(adopted, poison.UNREADABLE)
                return
            except Exception:
                self._log.exception("run not ended", run=run_id)
                failed = True
        try:
            if not await self.ownership.release(
                adopted.run_id, adopted.epoch, failed=failed, unreadable=unreadable
            ):
                self._log.info("run not released, it is locked or lost", run=run_id)
        except Exception:
            # After any error the run is looked for again, as one that is not driven.
            self._log.exception("run not released", run=run_id)

    def _room(self) -> int:
        used = len(self._driven) + len(self._accepting) + len(self._resuming)
        return self._deps.settings.max_active_runs - used

    def _require_room(self) -> None:
        if self.stopping or self._suspended:
            raise unavailable()
        if self._room() <= 0:
            self._deps.metrics.refused.labels("replica_full").inc()
            raise ResourceExhausted(
                "Too many questions are being answered at the moment; try again shortly.",
                reason="REPLICA_FULL",
                retry_after_s=1.0,
            )


async def _stopped(driven: Iterable[Orchestrator]) -> list[Orchestrator]:
    """Stop these loops and wait for their end."""
    stopping = list(driven)
    for each in stopping:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in stopping), return_exceptions=True)
    return stopping
