"""The runs of this process: accepting, adopting, driving, following and letting go."""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bos.runlog.v1 import CancelRequested, LogEvent, RunAccepted, RunAdopted
from bos_chassis.errors import AlreadyExists, BosError, NotFound, ResourceExhausted
from bos_gateway import context
from bos_gateway.feed import RunFeed
from bos_gateway.orchestrator import LostRun, Orchestrator, OwnedRun
from bos_gateway.run_log import Append, NewRun
from bos_gateway.state import BrokenLog, RunState, UnknownEvent, apply, fold

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from uuid import UUID

    from bos.gateway.v1 import AgentRequest
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.effects import Collaborators
    from bos_gateway.ownership import Adopted, Ownership
    from bos_gateway.run_log import LogWriter
    from bos_gateway.runs import Runs
    from bos_gateway.settings import GatewaySettings

_ADOPTION_INTERVAL_S = 1.0
_FOLLOW_POLL_S = 1.0
_CANCEL = "cancel"


class _Driven:
    """A run under way: its loop, and everybody's way to it."""

    def __init__(self, orchestrator: Orchestrator, feed: RunFeed) -> None:
        self.orchestrator = orchestrator
        self.feed = feed
        self.task: asyncio.Task[None] | None = None


class Replica:
    """Everything this process does with runs.

    Args:
        writer: The log's writer.
        runs: The log's reader.
        ownership: Lease and adoption.
        collaborators: What runs need to make progress.
        new_id: Makes run ids.
    """

    def __init__(
        self,
        writer: LogWriter,
        runs: Runs,
        ownership: Ownership,
        collaborators: Collaborators,
        new_id: Callable[[], UUID],
    ) -> None:
        self._writer = writer
        self._runs = runs
        self._ownership = ownership
        self._with = collaborators
        self._new_id = new_id
        self._driven: dict[UUID, _Driven] = {}
        self._log = collaborators.telemetry.logger("bos.gateway.replica")

    @property
    def has_room(self) -> bool:
        """Whether another run may start here."""
        return len(self._driven) < self._with.settings.max_active_runs

    async def accept(
        self, request: AgentRequest, user_id: str, *, interactive: bool, traceparent: str
    ) -> UUID:
        """Store a run and start it, or find the one that this request already started.

        Raises:
            InvalidArgument: the request cannot be run; names fields and fixes.
            AlreadyExists: the request id belongs to a request with another body.
            ResourceExhausted: too many runs are under way here.
        """
        settings, registry = self._with.settings, self._with.registry
        cards = registry.require_cards()
        normalised = context.normalise(request, cards, max_context_bytes=settings.max_context_bytes)
        digest = context.digest(normalised)
        if normalised.request_id:
            known = await self._runs.find_request(user_id, normalised.request_id)
            if known is not None:
                return _same(known.run_id, known.request_digest, digest)
        if not self.has_room:
            self._with.metrics.refused.labels("replica_full").inc()
            raise ResourceExhausted(
                "Too many questions are being answered at the moment; try again shortly.",
                reason="REPLICA_FULL",
                retry_after_s=1.0,
            )
        run_id = self._new_id()
        normalised.request_id = normalised.request_id or str(run_id)
        now = datetime.now(UTC)
        secrets = context.take_secrets(normalised.context, cards)
        context.attach_temporal_context(normalised.context, now)
        accepted = RunAccepted(
            user_id=user_id,
            request=normalised,
            cards=cards,
            settings=settings.run_settings(),
            interactive=interactive,
            traceparent=traceparent,
            unavailable_agents=registry.unavailable,
        )
        accepted.deadline.FromDatetime(now + self._time_allowed(normalised))
        event = LogEvent(run_accepted=accepted)
        event.create_time.FromDatetime(now)
        created = await self._writer.accept(
            NewRun(
                run_id=run_id,
                user_id=user_id,
                request_id=normalised.request_id,
                request_digest=digest,
                conversation_id=normalised.conversation_id,
                question=normalised.question,
                event=event,
            )
        )
        if not created:
            # Somebody else stored the same request in between.
            known = await self._runs.find_request(user_id, normalised.request_id)
            if known is None:
                raise NotFound("The run of this request is gone.")
            return _same(known.run_id, known.request_digest, digest)
        self._drive(run_id, 1, [event], secrets)
        return run_id

    async def follow(
        self, run_id: UUID, after_sequence: int
    ) -> AsyncIterator[tuple[int, LogEvent]]:
        """The run's committed events after a sequence, until its end.

        From memory while the run is driven here, from the log otherwise.
        """
        position = after_sequence
        while True:
            driven = self._driven.get(run_id)
            if driven is not None:
                async for sequence, event in driven.feed.follow(position):
                    position = sequence
                    yield sequence, event
                    if event.HasField("run_finished"):
                        return
                # The feed closed without an end: the run went to another replica.
            page = await self._runs.events(run_id, position)
            for sequence, event in page:
                position = sequence
                yield sequence, event
                if event.HasField("run_finished"):
                    return
            if not page:
                if await self._ended_before(run_id, position):
                    return
                await asyncio.sleep(_FOLLOW_POLL_S)

    async def state(self, run_id: UUID) -> RunState:
        """The run's present state."""
        driven = self._driven.get(run_id)
        events = driven.feed.events if driven else await self._runs.log(run_id)
        return fold(str(run_id), list(events))

    async def request(self, run_id: UUID) -> AgentRequest:
        """The request that the run was accepted with."""
        driven = self._driven.get(run_id)
        first = driven.feed.events[0] if driven else await self._runs.first_event(run_id)
        return first.run_accepted.request

    async def cancel(self, run_id: UUID, user_id: str, reason: str) -> None:
        """Ask for the run to end; whoever owns it will see to that."""
        event = LogEvent(cancel_requested=CancelRequested(user_id=user_id, reason=reason))
        event.create_time.FromDatetime(datetime.now(UTC))
        await self._ownership.add_input(run_id, _CANCEL, event)
        driven = self._driven.get(run_id)
        if driven is not None:
            await self._hand_over_inputs(run_id, driven.orchestrator)

    async def adopt(self) -> int:
        """Take over runs that nobody owns, as far as there is room; returns how many."""
        room = self._with.settings.max_active_runs - len(self._driven)
        if room <= 0:
            return 0
        adopted = await self._ownership.adopt(room)
        for run in adopted:
            await self._resume(run)
        return len(adopted)

    async def stop(self) -> None:
        """Stop driving and let go of every run."""
        tasks = [driven.task for driven in self._driven.values() if driven.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._ownership.release_all()

    async def _resume(self, adopted: Adopted) -> None:
        """Record the adoption, then drive the run from where its log ends."""
        metrics = self._with.metrics
        try:
            events = await self._runs.log(adopted.run_id)
            state = fold(str(adopted.run_id), events)
            event = LogEvent(run_adopted=RunAdopted(reason=adopted.reason))
            event.create_time.FromDatetime(datetime.now(UTC))
            append = Append(
                adopted.run_id, adopted.epoch, state.last_sequence + 1, [event], durable=False
            )
            await self._writer.append(append)
        except (LostRun, UnknownEvent, BrokenLog, BosError) as error:
            self._log.error(
                "run cannot be adopted", run=str(adopted.run_id), error=type(error).__name__
            )
            return
        metrics.adopted.labels(adopted.reason).inc()
        self._log.info("run adopted", run=str(adopted.run_id), reason=adopted.reason)
        driven = self._drive(adopted.run_id, adopted.epoch, [*events, event], {})
        await self._hand_over_inputs(adopted.run_id, driven.orchestrator)

    def _drive(
        self, run_id: UUID, epoch: int, events: list[LogEvent], secrets: Mapping[str, str]
    ) -> _Driven:
        feed = RunFeed(events)
        state = RunState(str(run_id))
        for event in events:
            apply(state, event)
        run = OwnedRun(run_id, epoch, state, feed, secrets)
        driven = _Driven(Orchestrator(run, self._writer, self._with), feed)
        self._driven[run_id] = driven
        self._with.metrics.active_runs.set(len(self._driven))
        # A context of its own: the run outlives the call that started it, so neither that call's
        # deadline nor its caller may leak into the run.
        driven.task = asyncio.create_task(
            self._driven_to_end(run_id, driven), name=f"run {run_id}", context=contextvars.Context()
        )
        return driven

    async def _driven_to_end(self, run_id: UUID, driven: _Driven) -> None:
        try:
            await driven.orchestrator.drive()
        except LostRun:
            self._with.metrics.lost.inc()
            self._log.warning("run lost to another replica", run=str(run_id))
        except Exception:
            # The lease keeps this run ours, so nobody else repeats the defect; a restart adopts it.
            self._log.exception("run stopped", run=str(run_id))
        finally:
            del self._driven[run_id]
            self._with.metrics.active_runs.set(len(self._driven))
            driven.feed.close()

    async def _hand_over_inputs(self, run_id: UUID, orchestrator: Orchestrator) -> None:
        for payload in await self._ownership.take_inputs(run_id):
            await orchestrator.submit(LogEvent.FromString(payload))

    async def _ended_before(self, run_id: UUID, position: int) -> bool:
        """Whether the run's last event lies at or before ``position``."""
        last = await self._runs.events(run_id, max(0, position - 1))
        return any(event.HasField("run_finished") for _, event in last)

    def _time_allowed(self, request: AgentRequest) -> timedelta:
        limit = timedelta(seconds=self._with.settings.run_timeout_s)
        if not request.HasField("timeout"):
            return limit
        return min(limit, request.timeout.ToTimedelta())


@asynccontextmanager
async def running_replica(
    replica: Replica, ownership: Ownership, settings: GatewaySettings, telemetry: Telemetry
) -> AsyncIterator[Replica]:
    """Hold the lease and adopt runs while the block runs; let go of everything afterwards."""
    log = telemetry.logger("bos.gateway.replica")

    async def repeat(what: str, action: Callable[[], Awaitable[object]], wait_s: float) -> None:
        while True:
            try:
                await action()
            except BosError as error:
                log.warning("housekeeping failed", what=what, reason=error.reason)
            await asyncio.sleep(wait_s)

    await ownership.renew()
    tasks = [
        asyncio.create_task(
            repeat("lease", ownership.renew, settings.lease_renewal_s), name="lease"
        ),
        asyncio.create_task(
            repeat("adoption", replica.adopt, _ADOPTION_INTERVAL_S), name="adoption"
        ),
    ]
    try:
        yield replica
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await replica.stop()


def _same(run_id: UUID, stored: bytes, given: bytes) -> UUID:
    if stored != given:
        raise AlreadyExists(
            "This request id was used for another question; choose a new one.",
            reason="REQUEST_ID_REUSED",
        )
    return run_id
