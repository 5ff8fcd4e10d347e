"""Results at the gateway's edge: checked for sense, and cut to a size that can be handed on. Pure.

What comes in here is stored and folded again and again, so nothing that cannot be worked with later
may pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.agent.v1 import AgentResult
from bos.composer.v1 import ComposerOutput

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from google.protobuf.timestamp_pb2 import Timestamp

    from bos.common.v1 import TraceEvent
    from bos.gateway.v1 import OrchestratorResponse
    from bos_gateway.state import RunState

MAX_RESULT_BYTES = 256 * 1024
MAX_RESULTS_BYTES = 2 * 1024 * 1024
MAX_REQUEST_BYTES = 8 * 1024 * 1024 - 4096
"""Of what a step is sent: agents take 8 MiB unless told otherwise."""
MAX_RESPONSE_BYTES = 7 * 512 * 1024
"""Of a whole response: gRPC clients take 4 MiB unless told otherwise."""
MAX_TRACE_EVENTS = 500
"""Trace events kept of one step; agents that write more lose the rest."""
MAX_TRACE_BYTES = 1024 * 1024
"""Size of the trace events kept of one step."""
MAX_ANSWER_BYTES = 256 * 1024
"""Longest answer, several times what people read; it is stored with the run."""

_CUT = "\n\n(The answer was longer and is cut off here.)"

_MIN_SECONDS = -62_135_596_800  # 0001-01-01, the first time that Timestamp can hold
_MAX_SECONDS = 253_402_300_799  # 9999-12-31


def result_problem(result: AgentResult) -> str | None:
    """What makes an agent's result unusable, in words for people; None if it is fine."""
    if result.HasField("table"):
        names = [column.name for column in result.table.columns]
        if len(set(names)) < len(names):
            return "its table has two columns of the same name"
        if any(len(row.values) != len(names) for row in result.table.rows):
            return "its table has a row with more or fewer cells than columns"
    if result.HasField("start_time") and not _valid(result.start_time):
        return "its start time is not a time"
    return None


def sound_trace(events: Sequence[TraceEvent], now: datetime) -> list[TraceEvent]:
    """The events, those without a usable time at ``now``."""
    for event in events:
        if not event.HasField("create_time") or not _valid(event.create_time):
            event.create_time.FromDatetime(now)
    return list(events)


def fit(results: Sequence[AgentResult], budget: int) -> list[AgentResult]:
    """The results, with the largest tables and data cut until all fit into ``budget`` bytes.

    Cut tables say ``truncated``; fields that are dropped are named in ``data["truncated_fields"]``.
    Results that fit are handed back as they are.
    """
    if sum(result.ByteSize() for result in results) <= budget:
        return list(results)
    copies = []
    for result in results:
        copy = AgentResult()
        copy.CopyFrom(result)
        copies.append(copy)
    while sum(copy.ByteSize() for copy in copies) > budget:
        if not _shrink(max(copies, key=AgentResult.ByteSize)):
            break
    return copies


def fitting_answer(output: ComposerOutput) -> ComposerOutput:
    """The output; an answer longer than ``MAX_ANSWER_BYTES`` is cut, and says so."""
    text = output.answer.encode()
    if len(text) <= MAX_ANSWER_BYTES:
        return output
    cut = ComposerOutput()
    cut.CopyFrom(output)
    cut.answer = text[:MAX_ANSWER_BYTES].decode(errors="ignore") + _CUT
    return cut


def held_bytes(state: RunState) -> int:
    """What results and inputs of the steps so far take."""
    steps = [step for attempt in state.past for step in attempt.steps.values()]
    steps += state.steps.values()
    results = sum(step.result.ByteSize() for step in steps if step.result)
    return results + sum(step.sub_task.ByteSize() for step in steps if step.sub_task)


def fit_response(response: OrchestratorResponse) -> None:
    """Cut the results in ``response``, in place, until clients can receive all of it.

    Whoever asks for the trace gets it twice, in the results and merged.
    """
    results = list(response.agent_results)
    traced = sum(event.ByteSize() for result in results for event in result.trace)
    rest = response.ByteSize() - sum(result.ByteSize() for result in results) + traced
    fitting = fit(results, max(0, MAX_RESPONSE_BYTES - rest))
    del response.agent_results[:]
    response.agent_results.extend(fitting)


def _shrink(result: AgentResult) -> bool:
    """Make the result smaller by its largest part; False if nothing is left to take away."""
    table = result.table.ByteSize() if result.HasField("table") else 0
    fields = {
        (part, name): value.ByteSize()
        for part in ("data", "partial_data")
        for name, value in getattr(result, part).fields.items()
        if name != "truncated_fields"
    }
    largest = max(fields, key=lambda key: fields[key], default=None)
    traced = sum(event.ByteSize() for event in result.trace)
    biggest = max(table, traced, fields[largest] if largest else 0)
    if biggest == 0 or biggest < 64:
        return False
    if biggest == traced:
        del result.trace[: max(1, len(result.trace) // 2)]
    elif biggest == table:
        del result.table.rows[len(result.table.rows) // 2 :]
        result.table.row_count = len(result.table.rows)
        result.table.truncated = True
        if not result.table.rows:
            result.ClearField("table")
    elif largest is not None:
        part, name = largest
        fields_of = getattr(result, part).fields
        del fields_of[name]
        fields_of["truncated_fields"].list_value.values.add(string_value=name)
    return True


def _valid(time: Timestamp) -> bool:
    return _MIN_SECONDS <= time.seconds <= _MAX_SECONDS and 0 <= time.nanos < 1_000_000_000
