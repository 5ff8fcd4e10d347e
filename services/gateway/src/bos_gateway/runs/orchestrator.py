"""Orchestrator of one run: decide, perform, store, show, decide again.

One task per run that this replica owns. It is the only one that appends to the run's log and the
only one that changes the run's state, so nothing here needs a lock. An event is applied when it is
handed to the log's writer: work that changes nothing outside begins while its commit is under way.
Clients see it, and effects on the outside begin, after the commit (``unflushed``). Events
of effects wait in a bounded inbox; a full inbox slows the effect down, not the process.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from attrs import define, field

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import AgentError
from bos.gateway.v1 import RUN_STATUS_FAILED, RunStatus
from bos.runlog.v1 import LogEvent, PlanFailed, RunFinished, StepFinished
from bos_chassis.log_fields import log_fields
from bos_chassis.metrics import current_exemplar
from bos_chassis.tracing.spans import under
from bos_gateway.core import decide
from bos_gateway.core.failures import NEUTRAL, failed_result, may_repeat
from bos_gateway.core.fold import admissible, apply, status_after, waits
from bos_gateway.core.response import broken_response
from bos_gateway.core.taint import is_tainted
from bos_gateway.effects.classify import classify, taken_to_add
from bos_gateway.effects.compose import compose
from bos_gateway.effects.context import Deps, EffectContext
from bos_gateway.effects.plan import make_plan, prepare_agents
from bos_gateway.effects.step import run_step
from bos_gateway.run_log.audit import entries_of
from bos_gateway.run_log.lanes import LogRefused
from bos_gateway.run_log.records import Append
from bos_gateway.runs.trace_exports import export_run
from bos_gateway.runs.unflushed import UnflushedEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from opentelemetry.trace import SpanContext
    from structlog.typing import FilteringBoundLogger

    from bos_gateway.core.run_state import RunState
    from bos_gateway.ownership.owners import Adopted
    from bos_gateway.run_log.writer import LogWriter
    from bos_gateway.runs.feed import RunFeed

    Effect = Callable[[EffectContext, Any], Coroutine[Any, Any, None]]

_INBOX = 256
_LOOK_AGAIN_S = 0.05
_EFFECTS: Final[Mapping[type[decide.Command], Effect]] = {
    decide.MakePlan: make_plan,
    decide.RunStep: run_step,
    decide.Classify: classify,
    decide.Compose: compose,
}
# What distinguishes it from other work of its kind; budgets may change while it is under way.
_KEY_FIELDS: Final = ("revision", "step_id", "approval_id")


@define(eq=False, repr=False)
class Orchestrator:
    """Drives one run, which this replica may write, to its end."""

    adopted: Adopted
    state: RunState
    feed: RunFeed
    """Shows the events that the state holds."""
    secrets: Mapping[str, str]
    _writer: LogWriter
    _deps: Deps
    _holds_lease: Callable[[], bool]
    """Whether this replica's lease is in force."""
    task: asyncio.Task[None] = field(init=False)
    """What drives it, once that was begun."""
    _unflushed: UnflushedEvents = field(init=False)
    _effects: EffectContext = field(init=False)
    _log: FilteringBoundLogger = field(init=False)
    _inbox: asyncio.Queue[LogEvent | None] = field(init=False)
    _awaited: dict[int, asyncio.Future[None]] = field(init=False, factory=dict)
    _active: dict[object, asyncio.Task[None]] = field(init=False, factory=dict)
    _preparing: list[asyncio.Task[None]] = field(init=False, factory=list)
    _dropped: set[str] = field(init=False, factory=set)

    def __attrs_post_init__(self) -> None:
        last, wake = self.state.last_sequence, partial(self.submit, None)
        self._unflushed = UnflushedEvents(self._writer, last, self._show, wake)
        self._inbox = asyncio.Queue(_INBOX)
        self._effects = EffectContext(
            self.state,
            self.secrets,
            self._deps,
            self._inbox.put,
            self._committed,
            self.feed.say,
            self.adopted.epoch,
        )
        self._log = self._deps.telemetry.logger("bos.gateway.orchestrator")

    def submit(self, event: LogEvent | None) -> None:
        """Take an event from outside, such as a request to cancel; None only wakes the loop.

        A full inbox drops it: the loop is awake then, and inputs stay stored until the run ends and
        are handed over again.
        """
        with suppress(asyncio.QueueFull):
            self._inbox.put_nowait(event)

    async def drive(self) -> None:
        """Drive the run until it has ended, or has no owner until an approval is decided.

        Raises:
            LostRun: another replica owns the run now.
            UnknownEvent: an input is of a kind that this version does not know.
            BosError: its log cannot be written.
        """
        trace = self._effects.trace
        with (
            log_fields(self.state.request.user_id, self.state.run_id),
            under(None if trace is None else trace.root),
        ):
            try:
                if self.state.last_sequence == 1 and self.state.cancel_reason is None:
                    # A run that is just beginning: agents prefetch, beside everything else.
                    self._preparing.append(asyncio.create_task(self._prepared(), name="prepare"))
                # Inputs that came while the run had no owner come before anything else.
                await self._store(self._arrived())
                while not (self.state.finished or self.state.released):
                    commands = decide.decide(self.state, self._deps.clock.now())
                    if commands and isinstance(commands[0], decide.Record):
                        await self._store(list(commands[0].events))
                    else:
                        await self._until_lease_held()
                        self._reconcile(commands)
                        await self._store(await self._next_events())
                self._reconcile([])  # nothing may begin any more when a commit is through
                await self._unflushed.committed()
            finally:
                tasks = [*self._active.values(), *self._preparing]
                for task in tasks:
                    task.cancel()
                # Effects that wait for room in the inbox would otherwise hold up their own
                # cancellation until the queue is collected with us; so every one of them is seen
                # to end.
                await asyncio.gather(*tasks, return_exceptions=True)

    async def fail(self) -> None:
        """End the run after an internal error, so that its clients do not wait.

        Raises:
            LostRun: another replica owns the run now.
            BosError: its log cannot be written.
        """
        event = self._deps.clock.stamped(self._broken_end())
        with suppress(LogRefused):
            await self._unflushed.committed()
        stored = self._unflushed.last_sequence
        # What was applied and never handed on is in no log; neither is what the log refused. Then
        # the state is ahead of the log, and counts no more.
        if self.state.finished and self.state.last_sequence == stored:
            return
        await self._until_lease_held()
        run_id, epoch = self.adopted.run_id, self.adopted.epoch
        await self._writer.append(
            Append(run_id, epoch, stored + 1, [event], status=RUN_STATUS_FAILED, finished=True)
        )
        self._show([event])

    async def release(self, event: LogEvent) -> None:
        """Record that this replica releases the run, which it no longer drives.

        Raises:
            LostRun: another replica owns the run now.
            BosError: its log cannot be written.
        """
        self._unflushed.check()
        if not (self.state.finished or self.state.released):
            self._append([event])
        await self._unflushed.committed()

    async def _prepared(self) -> None:
        try:
            await prepare_agents(self._effects)
        except Exception:
            # After any error the run goes on without.
            self._log.exception("agents not prepared", run=self.state.run_id)

    async def _until_lease_held(self) -> None:
        """Return once the lease is in force; until then wait to be stopped, as most runs are.

        The wait ends: a run whose acceptance was stored behind a new lease, and known before it,
        is not stopped and goes on.
        """
        # No event could say so: it is time that passes, perhaps while this process is frozen.
        while not self._holds_lease():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _reconcile(self, commands: Sequence[decide.Command]) -> None:
        """Start what is missing, stop what is not wanted."""
        wanted: dict[object, decide.Command] = {
            (type(command), *(getattr(command, each, None) for each in _KEY_FIELDS)): command
            for command in commands
        }
        for key in self._active.keys() - wanted.keys():
            self._active.pop(key).cancel()
        for key, command in wanted.items():
            if key not in self._active:
                self._active[key] = asyncio.create_task(
                    self._guarded(command), name=f"effect {key}"
                )

    async def _guarded(self, command: decide.Command) -> None:
        """Run an effect; an unexpected error ends its part of the run alone."""
        effect, acts = _EFFECTS[type(command)], False
        if isinstance(command, decide.RunStep):
            step = self.state.steps[command.step_id].step
            # It must be on disk that this was begun if it may not begin again.
            performing = command.approval.approved_actions if command.approval else ()
            acts = not may_repeat(self.state.card(step.agent), step, performing)
        with under(self._span_of(command)):
            if acts:
                try:
                    await self._unflushed.committed()
                    await self._until_lease_held()
                except Exception:
                    return  # the pipeline wakes the loop
            try:
                await effect(self._effects, command)
            except Exception as error:
                self._log.exception("effect raised", run=self.state.run_id, command=str(command))
                broken = self._broken(command, type(error).__name__)
                await self._inbox.put(self._deps.clock.stamped(broken))

    def _span_of(self, command: decide.Command) -> SpanContext | None:
        """The span that an effect belongs to, which is exported when the run has ended."""
        if (trace := self._effects.trace) is None:
            return None
        match command:
            case decide.RunStep(revision=revision, step_id=step_id, attempt=attempt):
                return trace.attempt(revision, step_id, attempt)
            case decide.MakePlan(revision=revision):
                return trace.plan(revision)
            case decide.Classify(approval_id=approval_id):
                return trace.instructions(approval_id)
            case decide.Compose():
                return trace.answer()
            case _:
                return trace.root

    def _broken(self, command: decide.Command, error_type: str) -> LogEvent:
        """Event recorded when an effect raises."""
        match command:
            case decide.RunStep(revision=revision, step_id=step_id):
                step = self.state.steps[step_id]
                result = failed_result(step, error_type, NEUTRAL)
                result.tainted = is_tainted(self.state, step)
                finished = StepFinished(
                    revision=revision, step_id=step_id, result=result, attempts=step.attempt
                )
                return LogEvent(step_finished=finished)
            case decide.MakePlan(revision=revision):
                error = AgentError(type=error_type, message=NEUTRAL)
                return LogEvent(plan_failed=PlanFailed(revision=revision, error=error))
            case decide.Classify():
                return LogEvent(instructions_classified=taken_to_add(command))
            case _:
                return self._broken_end()

    def _broken_end(self) -> LogEvent:
        return LogEvent(run_finished=RunFinished(response=broken_response(self.state)))

    async def _next_events(self) -> list[LogEvent]:
        """Events of effects; empty after a time-out."""
        wake = decide.next_wake(self.state)
        timeout = None if wake is None else max(0.0, self._deps.clock.left_s(wake))
        first: LogEvent | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                first = await self._inbox.get()
        return [first, *self._arrived()] if first is not None else self._arrived()

    def _arrived(self) -> list[LogEvent]:
        """Events in the inbox."""
        arrived = [self._inbox.get_nowait() for _ in range(self._inbox.qsize())]
        return [event for event in arrived if event is not None]

    async def _store(self, events: list[LogEvent]) -> None:
        """Apply, and have it written and then shown. What is no longer true is left out."""
        accepted, dropped = admissible(self.state, events)
        # Left where they are, they would wake the run again as soon as it waits.
        self._dropped.update(dropped)
        await self._unflushed.room()
        if accepted:
            await self._until_lease_held()
            self._append(accepted)

    def _append(self, events: list[LogEvent]) -> None:
        released = waits(events[-1])
        if released:
            events[-1].run_released.dropped_approval_ids.extend(sorted(self._dropped))
        status = reduce(status_after, events, self.state.status)
        append = Append(
            self.adopted.run_id,
            self.adopted.epoch,
            self.state.last_sequence + 1,
            events,
            status=status if status != self.state.status or released else None,
            finished=events[-1].HasField("run_finished"),
            audit=entries_of(self.state, events, self._deps.settings.agent_audiences),
        )
        for event in events:
            apply(self.state, event)
        self._unflushed.add(append)
        for event in events:
            applied = self._awaited.pop(id(event), None)
            if applied is not None and not applied.done():
                applied.set_result(None)

    def _show(self, events: Sequence[LogEvent]) -> None:
        """Show committed events, then count them; metrics never fail a run."""
        self.feed.publish(events)
        for event in events:
            try:
                self._observe(event)
            except Exception:
                self._log.exception("event not in the metrics", run=self.state.run_id)
        if events[-1].HasField("run_finished"):
            export_run(self._deps.telemetry, self.state.run_id, self.feed.events)

    async def _committed(self, event: LogEvent) -> None:
        """Store an event of an effect, and return once it is on disk.

        An effect whose event is no longer true waits here until it is cancelled, as it will be.
        """
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[id(event)] = applied
        try:
            await self._inbox.put(event)
            await applied
            await self._unflushed.committed()
        finally:
            self._awaited.pop(id(event), None)

    def _observe(self, event: LogEvent) -> None:
        metrics = self._deps.metrics
        match event.WhichOneof("event"):
            case "step_finished":
                result = event.step_finished.result
                status = AgentExecutionStatus.Name(result.status)
                agent = metrics.agent(result.agent_name)
                labels = agent, status.removeprefix("AGENT_EXECUTION_STATUS_").lower()
                seconds = result.latency.ToNanoseconds() / 1e9
                metrics.step_seconds.labels(*labels).observe(seconds, current_exemplar())
            case "planned" if event.planned.revision:
                metrics.revisions.labels("planned").inc()
            case "plan_failed" if event.plan_failed.revision:
                metrics.revisions.labels("failed").inc()
            case "approval_resolved":
                metrics.resolved(event.approval_resolved.approval)
            case "run_finished":
                response = event.run_finished.response
                outcome = RunStatus.Name(response.status).removeprefix("RUN_STATUS_").lower()
                usage, latency = response.metadata.usage, response.metadata.latency
                metrics.runs.labels(outcome).inc()
                metrics.run_tokens.labels("reported").inc(usage.input_tokens + usage.output_tokens)
                metrics.run_tokens.labels("unreported").inc(usage.unreported_tokens)
                seconds = latency.ToNanoseconds() / 1e9
                metrics.run_seconds.labels(outcome).observe(seconds, current_exemplar())
