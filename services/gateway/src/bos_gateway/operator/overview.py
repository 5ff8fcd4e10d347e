"""A run as an operator sees it: states, times, agents, types of errors, counts. Pure.

Texts are taken over only if they are names: what a model, an agent or a user writes is content.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import asyncpg
from google.protobuf.message import DecodeError

from bos.gateway.v1 import RunOverview, StepOverview
from bos.runlog.v1 import LogEvent
from bos_gateway.core.run_state import RunState, StepState

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_OTHER: Final = "Other"
_MOST_AGENTS: Final = 64


def overview_of_row(row: asyncpg.Record) -> RunOverview:
    """The row of a run, with the few events that were read along."""
    plans = (_event(payload).planned.plan for payload in row["plans"])
    overview = RunOverview(
        run_id=str(row["run_id"]),
        user_id=row["user_id"],
        status=row["status"],
        last_sequence=row["last_sequence"],
        tokens=row["tokens"] or 0,
        agents=_names(step.agent for plan in plans for step in plan.steps),
    )
    overview.create_time.FromDatetime(row["created_at"])
    overview.update_time.FromDatetime(row["updated_at"])
    if row["finished_at"] is not None:
        overview.finish_time.FromDatetime(row["finished_at"])
    if row["ended"] is not None:
        response = _event(row["ended"]).run_finished.response
        overview.error_type = error_type(response.error.type)
    return overview


def add_state(overview: RunOverview, state: RunState) -> None:
    """Add what only the whole log holds: steps, consumption, and the error of a long answer."""
    plans = [*(attempt.steps for attempt in state.past), state.steps]
    steps = [_step(*placed) for plan in plans for placed in enumerate(plan.values(), 1)]
    del overview.agents[:]
    overview.agents.extend(_names(step.agent for step in steps))
    overview.steps.extend(steps)
    overview.status = state.status
    overview.last_sequence = state.last_sequence
    overview.revision = state.revision
    response = state.response
    overview.usage.CopyFrom(state.usage if response is None else response.metadata.usage)
    overview.usage.models[:] = _names(overview.usage.models)
    if response is not None:
        overview.error_type = error_type(response.error.type)


def error_type(text: str) -> str:
    """The type of an error if it is a name; an agent may write anything there."""
    return text if not text or _NAME.fullmatch(text) else _OTHER


def _event(payload: bytes) -> LogEvent:
    """An event; an empty one if it cannot be read: one broken log must not hide all other runs."""
    try:
        return LogEvent.FromString(payload)
    except DecodeError:
        return LogEvent()


def _step(place: int, step: StepState) -> StepOverview:
    overview = StepOverview(
        revision=step.revision,
        place=place,
        agent=error_type(step.step.agent),
        status=step.status,
        attempts=step.attempt,
        awaits_approval=step.awaits,
    )
    result = step.result
    if result is not None:
        overview.error_type = error_type(result.error.type)
        overview.usage.CopyFrom(result.usage)
        overview.usage.models[:] = _names(result.usage.models)
        if result.HasField("start_time"):
            overview.start_time.CopyFrom(result.start_time)
        if result.HasField("latency"):
            overview.latency.CopyFrom(result.latency)
    return overview


def _names(texts: Iterable[str]) -> list[str]:
    """Those that are names, without duplicates, and not too many of them."""
    return [text for text in dict.fromkeys(texts) if _NAME.fullmatch(text)][:_MOST_AGENTS]
