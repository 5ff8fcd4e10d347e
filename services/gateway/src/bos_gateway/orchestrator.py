"""The loop that ties a run together: decide, perform, store, show, decide again.

One task per run that this replica owns. It is the only one that appends to the run's log and the
only one that changes the run's state, so nothing here needs a lock. An event is applied when it is
handed to the log's writer: work that changes nothing outside begins while its commit is under way.
Clients see it, and whatever could change the world begins, after the commit (``pipeline``). Events
of effects wait in a bounded inbox; a full inbox slows the effect down, not the process.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bos.agent.v1 import AgentExecutionStatus
from bos.common.v1 import AgentError
from bos.gateway.v1 import RUN_STATUS_FAILED, RunStatus
from bos.runlog.v1 import LogEvent, PlanFailed, RunFinished, StepFinished
from bos_gateway.composing import compose
from bos_gateway.decide import (
    Classify,
    Command,
    Compose,
    MakePlan,
    Record,
    RunStep,
    decide,
    next_wake,
)
from bos_gateway.effects import EffectContext
from bos_gateway.failures import NEUTRAL, failed_result, may_repeat
from bos_gateway.lanes import LogRefused
from bos_gateway.log_items import Append
from bos_gateway.pipeline import Pipeline
from bos_gateway.planning import classify, make_plan, prepare_agents, taken_to_add
from bos_gateway.response import broken_response
from bos_gateway.state import RunState, UnknownEvent, apply, status_after, waits
from bos_gateway.stepping import run_step

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any
    from uuid import UUID

    from bos_gateway.effects import Collaborators
    from bos_gateway.feed import RunFeed
    from bos_gateway.run_log import LogWriter

_INBOX = 256
_LOOK_AGAIN_S = 0.05
_OF_STEPS = frozenset({"step_dispatched", "step_progressed", "step_finished"})
_OF_PLANNING = frozenset({"planned", "plan_failed"})


@dataclass(frozen=True, slots=True)
class OwnedRun:
    """A run that this replica may write, and what it knows about it."""

    run_id: UUID
    epoch: int
    state: RunState
    feed: RunFeed
    secrets: Mapping[str, str] = field(repr=False)


class Orchestrator:
    """Drives one run to its end.

    Args:
        run: The run; its state holds the events of its feed.
        log: The process's writer.
        collaborators: What effects need.
        holds_lease: Whether this replica's lease is in force.
    """

    def __init__(
        self,
        run: OwnedRun,
        log: LogWriter,
        collaborators: Collaborators,
        holds_lease: Callable[[], bool] = lambda: True,
    ) -> None:
        self._run = run
        self._holds_lease = holds_lease
        self._state = run.state
        self._writer = log
        self._pipeline = Pipeline(log, run.state.last_sequence, self._show, self._wake)
        self._with = collaborators
        self._log = collaborators.telemetry.logger("bos.gateway.orchestrator")
        # None only wakes the loop, for it to see that an append has failed.
        self._inbox: asyncio.Queue[LogEvent | None] = asyncio.Queue(_INBOX)
        self._awaited: dict[int, asyncio.Future[None]] = {}
        emit, say = self._inbox.put, run.feed.say
        self._effects = EffectContext(
            run.state, run.secrets, collaborators, emit, self._committed, say
        )
        self._active: dict[object, asyncio.Task[None]] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._dropped: set[str] = set()

    def submit(self, event: LogEvent) -> None:
        """Take an event from outside, such as a request to cancel.

        A full inbox drops it: inputs stay stored until the run ends and are handed over again.
        """
        with suppress(asyncio.QueueFull):
            self._inbox.put_nowait(event)

    async def drive(self) -> None:
        """Run until the run has ended, or is nobody's until somebody decides.

        Raises:
            LostRun: another replica owns the run now.
            UnknownEvent: an input is of a kind that this version does not know.
            BosError: its log cannot be written.
        """
        propagator = TraceContextTextMapPropagator()
        parent = propagator.extract({"traceparent": self._state.request.traceparent})
        with self._with.telemetry.tracer.start_as_current_span(
            "run", context=parent, attributes={"bos.run_id": self._state.run_id}
        ):
            try:
                self._prepare()
                # What others wanted while nobody owned the run comes before anything else.
                await self._store(self._drain([]))
                while not (self._state.finished or self._state.let_go):
                    commands = decide(self._state, self._with.clock.now())
                    if commands and isinstance(commands[0], Record):
                        await self._store(list(commands[0].events))
                    else:
                        await self._until_lease_held()
                        self._reconcile(commands)
                        await self._store(await self._next_events())
                self._reconcile([])  # nothing may begin any more when a commit is through
                await self._pipeline.committed()
            finally:
                await self._stop_effects()

    async def fail(self) -> None:
        """End the run after a defect of ours, so that nobody waits for it in vain.

        Raises:
            LostRun: another replica owns the run now.
            BosError: its log cannot be written.
        """
        event = LogEvent(run_finished=RunFinished(response=broken_response(self._state)))
        event = self._with.clock.stamped(event)
        # What was applied and never handed on is in no log; neither is what the log refused.
        whole = self._state.last_sequence == self._pipeline.end
        try:
            if whole and not self._state.finished:
                await self._store([event])
            await self._pipeline.committed()
        except LogRefused:
            whole = False
        if not whole:
            await self._end_behind_what_is_stored(event)

    async def _end_behind_what_is_stored(self, event: LogEvent) -> None:
        """End a run whose log refused an event: the state is ahead of it and counts no more."""
        first = self._pipeline.last_sequence + 1
        await self._writer.append(
            Append(
                self._run.run_id,
                self._run.epoch,
                first,
                [event],
                status=RUN_STATUS_FAILED,
                finished=True,
            )
        )
        self._show([event])

    async def release(self, event: LogEvent) -> None:
        """Record that this replica lets go of the run, which it no longer drives.

        Raises:
            LostRun: another replica owns the run now.
            BosError: its log cannot be written.
        """
        self._pipeline.check()
        if not (self._state.finished or self._state.let_go):
            self._append([event])
        await self._pipeline.committed()

    def _prepare(self) -> None:
        """Have agents read ahead for a run that is just beginning, beside everything else."""
        if self._state.last_sequence == 1 and self._state.cancel_reason is None:
            self._preparing = asyncio.create_task(self._prepared(), name="prepare")

    async def _prepared(self) -> None:
        try:
            await prepare_agents(self._effects)
        except Exception:
            # Whatever it is, the run goes on without.
            self._log.exception("agents not prepared", run=self._state.run_id)

    async def _until_lease_held(self) -> None:
        """Return once the lease is in force; until then wait to be stopped, as most runs are.

        Not for ever: a run whose acceptance was stored behind a new lease, and told before it, is
        stopped by nobody and goes on.
        """
        # No event could say so: it is time that passes, perhaps while this process is frozen.
        while not self._holds_lease():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _reconcile(self, commands: Sequence[Command]) -> None:
        """Start what is missing, stop what is not wanted."""
        wanted = {_key(command): command for command in commands}
        for key in [key for key in self._active if key not in wanted]:
            self._active.pop(key).cancel()
        for key, command in wanted.items():
            if key not in self._active:
                self._active[key] = asyncio.create_task(
                    self._guarded(command), name=f"effect {key}"
                )

    def _effect(self, command: Command) -> Coroutine[Any, Any, None]:
        match command:
            case MakePlan():
                return make_plan(self._effects, command)
            case RunStep():
                return run_step(self._effects, command)
            case Classify():
                return classify(self._effects, command)
            case Compose():
                return compose(self._effects, command)
            case Record():
                raise TypeError("records are stored, not performed")

    async def _guarded(self, command: Command) -> None:
        """The boundary of SPEC Q-05: an effect that breaks ends its part of the run, no more."""
        tracer = self._with.telemetry.tracer
        with tracer.start_as_current_span(_span_name(self._state, command)) as span:
            if self._acts(command):
                try:
                    await self._pipeline.committed()
                    await self._until_lease_held()
                except Exception:
                    return  # the loop is told by the pipeline
            try:
                await self._effect(command)
            except Exception as error:
                self._log.exception("effect broke", run=self._state.run_id, command=str(command))
                span.set_status(trace.StatusCode.ERROR)
                await self._inbox.put(self._broken(command, type(error).__name__))

    def _acts(self, command: Command) -> bool:
        """Whether it must be on disk that this was begun, because nobody may begin it again."""
        if not isinstance(command, RunStep):
            return False
        step = self._state.steps[command.step_id]
        performing = command.approval.approved_actions if command.approval else ()
        return not may_repeat(self._state.card(step.step.agent), step.step, performing)

    def _broken(self, command: Command, error_type: str) -> LogEvent:
        event = LogEvent()
        event.create_time.FromDatetime(self._with.clock.now())
        match command:
            case RunStep(revision=revision, step_id=step_id):
                step = self._state.steps[step_id]
                finished = StepFinished(
                    revision=revision,
                    step_id=step_id,
                    result=failed_result(step, error_type, NEUTRAL),
                    attempts=step.attempt,
                )
                event.step_finished.CopyFrom(finished)
            case MakePlan(revision=revision):
                error = AgentError(type=error_type, message=NEUTRAL)
                event.plan_failed.CopyFrom(PlanFailed(revision=revision, error=error))
            case Classify():
                event.instructions_classified.CopyFrom(taken_to_add(command))
            case _:
                event.run_finished.CopyFrom(RunFinished(response=broken_response(self._state)))
        return event

    async def _next_events(self) -> list[LogEvent]:
        """What effects have produced; empty when only time has passed."""
        wake = next_wake(self._state)
        timeout = None if wake is None else max(0.0, self._with.clock.left_s(wake))
        events: list[LogEvent] = []
        try:
            async with asyncio.timeout(timeout):
                first = await self._inbox.get()
        except TimeoutError:
            return []
        if first is not None:
            events.append(first)
        return self._drain(events)

    def _drain(self, events: list[LogEvent]) -> list[LogEvent]:
        while not self._inbox.empty() and len(events) < _INBOX:
            if (event := self._inbox.get_nowait()) is not None:
                events.append(event)
        return events

    async def _store(self, events: list[LogEvent]) -> None:
        """Apply, and have it written and then shown. What is no longer true is left out."""
        accepted = self._admissible(events)
        await self._pipeline.room()
        if accepted:
            await self._until_lease_held()
            self._append(accepted)

    def _append(self, events: list[LogEvent]) -> None:
        finished, let_go = events[-1].HasField("run_finished"), waits(events[-1])
        if let_go:
            events[-1].run_released.dropped_approval_ids.extend(sorted(self._dropped))
        before, first = self._state.status, self._state.last_sequence + 1
        after = before
        for event in events:
            after = status_after(after, event)
        append = Append(
            self._run.run_id,
            self._run.epoch,
            first,
            events,
            status=after if after != before or let_go else None,
            finished=finished,
        )
        for event in events:
            apply(self._state, event)
        self._pipeline.add(append)
        for event in events:
            applied = self._awaited.pop(id(event), None)
            if applied is not None and not applied.done():
                applied.set_result(None)

    def _show(self, events: Sequence[LogEvent]) -> None:
        """Show what is committed, then count it; no count may get into a run's way."""
        self._run.feed.publish(events)
        for event in events:
            try:
                self._observe(event)
            except Exception:
                self._log.exception("event not counted", run=self._state.run_id)

    async def _committed(self, event: LogEvent) -> None:
        """Store an event of an effect, and return once it is on disk.

        An effect whose event is no longer true waits here until it is cancelled, as it will be.
        """
        applied: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited[id(event)] = applied
        try:
            await self._inbox.put(event)
            await applied
            await self._pipeline.committed()
        finally:
            self._awaited.pop(id(event), None)

    def _wake(self) -> None:
        with suppress(asyncio.QueueFull):  # then the loop is awake
            self._inbox.put_nowait(None)

    def _admissible(self, events: list[LogEvent]) -> list[LogEvent]:
        """The events that are still true of the state, up to the first end.

        After a request to cancel nothing else counts: what comes first of cancel and end wins.
        Results of steps that have ended, or of a plan that was revised, are dropped, and so is a
        plan that came too late.

        Raises:
            UnknownEvent: one of them, an input from a newer replica, means nothing to this version.
        """
        settled = {step_id for step_id, step in self._state.steps.items() if step.settled}
        undecided = {
            step.approval.approval_id
            for step in self._state.steps.values()
            if step.awaits and step.approval is not None
        }
        planning = self._state.planning
        found: list[LogEvent] = []
        for event in events:
            kind = event.WhichOneof("event")
            if kind is None:
                raise UnknownEvent(f"run {self._state.run_id}, an input")
            if kind == "cancel_requested":
                return [*found, event] if self._state.cancel_reason is None else found
            if kind == "approval_resolved":
                approval_id = event.approval_resolved.approval.approval_id
                if approval_id not in undecided:
                    # Left where it is, it would wake the run again as soon as it waits.
                    self._dropped.add(approval_id)
                    continue
                undecided.discard(approval_id)
            elif kind in _OF_PLANNING:
                if getattr(event, kind).revision != planning:
                    continue
                planning = None
            elif kind == "instructions_classified":
                classified = self._state.steps.get(event.instructions_classified.step_id)
                if classified is None or not classified.unclassified:
                    continue
            elif kind == "approval_requested":
                requested = event.approval_requested
                if requested.approval.step_id in settled or (
                    requested.revision != self._state.revision
                ):
                    continue
            elif kind in _OF_STEPS:
                body = getattr(event, kind)
                if body.step_id in settled or body.revision != self._state.revision:
                    continue
                if kind == "step_finished":
                    settled.add(body.step_id)
            found.append(event)
            if kind == "run_finished":
                break
        return found

    def _observe(self, event: LogEvent) -> None:
        metrics = self._with.metrics
        if event.HasField("step_finished"):
            result = event.step_finished.result
            status = AgentExecutionStatus.Name(result.status).removeprefix(
                "AGENT_EXECUTION_STATUS_"
            )
            seconds = result.latency.ToNanoseconds() / 1e9
            metrics.step_seconds.labels(result.agent_name, status.lower()).observe(seconds)
        elif event.planned.revision or event.plan_failed.revision:
            metrics.revisions.labels("planned" if event.HasField("planned") else "failed").inc()
        elif event.HasField("approval_resolved"):
            metrics.resolved(event.approval_resolved.approval)
        elif event.HasField("run_finished"):
            response = event.run_finished.response
            outcome = RunStatus.Name(response.status).removeprefix("RUN_STATUS_").lower()
            metrics.runs.labels(outcome).inc()
            usage = response.metadata.usage
            metrics.run_tokens.labels("reported").inc(usage.input_tokens + usage.output_tokens)
            metrics.run_tokens.labels("unreported").inc(usage.unreported_tokens)
            latency_s = response.metadata.latency.ToNanoseconds() / 1e9
            metrics.run_seconds.labels(outcome).observe(latency_s)

    async def _stop_effects(self) -> None:
        tasks = list(self._active.values())
        self._active.clear()
        if self._preparing is not None:
            tasks.append(self._preparing)
        for task in tasks:
            task.cancel()
        # Effects that wait for room in the inbox would otherwise hold up their own cancellation
        # only until the queue is collected with us; gather sees every one of them end.
        await asyncio.gather(*tasks, return_exceptions=True)


def _key(command: Command) -> object:
    match command:
        case RunStep(revision=revision, step_id=step_id):
            return ("step", revision, step_id)
        case MakePlan(revision=revision):
            return ("plan", revision)
        case Classify(approval_id=approval_id):
            return ("classify", approval_id)
        case _:
            return "compose"


def _span_name(state: RunState, command: Command) -> str:
    match command:
        case RunStep(step_id=step_id):
            return f"invoke_agent {state.steps[step_id].step.agent}"
        case MakePlan():
            return "plan"
        case Classify():
            return "classify"
        case _:
            return "compose"
