"""Export of the traces of ended runs, by their owner or the replica that found it dead.

Nothing says in the database that a trace was exported. What ended in the last moments of a replica
that died is exported again by the one that buries it: its spans have the same ids both times, so a
store that keeps spans by id has each of them once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from attrs import define, field

from bos_errors import BosError
from bos_gateway.core.tracing.ids import RunTrace
from bos_gateway.core.tracing.timeline import bare_run_span, run_spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from structlog.typing import FilteringBoundLogger

    from bos.runlog.v1 import LogEvent
    from bos_chassis.telemetry import Telemetry
    from bos_gateway.run_log.reader import Runs

_MOST_LEFT = 1_000


def export_run(telemetry: Telemetry, run_id: str, events: Sequence[LogEvent]) -> None:
    """Export the spans of a run that has ended; one that makes no sense has its own span alone.

    Args:
        telemetry: Of the gateway.
        run_id: The run.
        events: Its whole log.
    """
    try:
        telemetry.export(run_spans(run_id, events))
    except Exception:
        telemetry.logger("bos.gateway.traces").exception("trace incomplete", run=run_id)
        export_bare_run(telemetry, run_id, events[0], events[-1])


def export_bare_run(telemetry: Telemetry, run_id: str, first: LogEvent, last: LogEvent) -> None:
    """Export the span of a run without what it consisted of: its log is not looked at.

    Args:
        telemetry: Of the gateway.
        run_id: The run.
        first: RunAccepted, the first event.
        last: RunFinished, the last event.
    """
    if (trace := RunTrace.of(run_id, first.run_accepted)) is not None:
        error = last.run_finished.response.error.type
        times = first.create_time.ToNanoseconds(), last.create_time.ToNanoseconds()
        telemetry.export([bare_run_span(trace, *times, error)])


@define(eq=False)
class TraceExports:
    """Traces of runs that their owner did not export."""

    _runs: Runs
    _telemetry: Telemetry
    _left: asyncio.Queue[UUID] = field(init=False, factory=lambda: asyncio.Queue(_MOST_LEFT))
    _log: FilteringBoundLogger = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._log = self._telemetry.logger("bos.gateway.traces")

    def left_behind(self, run_ids: Iterable[UUID]) -> None:
        """Have the traces of these exported, beside everything else; too many are left out."""
        with suppress(asyncio.QueueFull):
            for run_id in run_ids:
                self._left.put_nowait(run_id)

    async def ended_unread(self, run_id: UUID, last: LogEvent) -> None:
        """Export the span of a run that was ended without looking at its log; it ends all the same.

        What was called for it before has parents that are nowhere.
        """
        try:
            first = await self._runs.first_event(run_id)
            export_bare_run(self._telemetry, str(run_id), first, last)
        except Exception:
            # Such a run may be the one whose first event cannot be read either.
            self._log.exception("trace not exported", run=str(run_id))

    async def export_next(self) -> None:
        """Wait for the next of them, and export it if it is recorded at all."""
        run_id = await self._left.get()
        try:
            first = await self._runs.first_event(run_id)
            trace = RunTrace.of(str(run_id), first.run_accepted)
            if trace is not None and trace.flags & 1:
                export_run(self._telemetry, str(run_id), await self._runs.log(run_id))
        except BosError as error:
            self._log.warning("trace not exported", run=str(run_id), reason=error.reason)
