"""Results at the gateway's edge: bounds of numbers, nesting, count and size. Pure.

What comes in here is stored and folded again and again, so nothing that cannot be worked with later
may pass. Numbers are clamped, since the rest of a result is worth keeping; what is too deep, too
wide or contradicts itself makes a result unusable.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import AgentResult
from bos_plans import MAX_VALUES, OutOfBounds, extent, is_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from google.protobuf.message import Message

    from bos.common.v1 import Source, Table, TraceEvent, Usage, Value
    from bos.composer.v1 import ComposerOutput
    from bos.gateway.v1 import OrchestratorResponse
    from bos_gateway.state import RunState

MAX_RESULT_BYTES = 256 * 1024
MAX_RESULTS_BYTES = 2 * 1024 * 1024
MAX_INPUT_BYTES = 2 * 1024 * 1024
"""Of what references of a step resolve to; its dispatch is an event of the log."""
MAX_RUN_INPUT_BYTES = 16 * 1024 * 1024
"""Results and inputs of a run beyond which a step's inputs may have ``MAX_RESULT_BYTES``."""
MAX_REQUEST_BYTES = 8 * 1024 * 1024 - 4096
"""Of what a step is sent: agents take 8 MiB unless told otherwise."""
MAX_RESPONSE_BYTES = 7 * 512 * 1024
"""Of a whole response: gRPC clients take 4 MiB unless told otherwise."""
MAX_CLARIFICATION_BYTES = 16 * 1024
"""Of the questions of one step, or of the planner; those of all steps are told together."""
MAX_TRACE_EVENTS = 500
"""Trace events kept of one step; agents that write more lose the rest."""
MAX_TRACE_BYTES = 1024 * 1024
"""Size of the trace events kept of one step."""
MAX_ANSWER_BYTES = 256 * 1024
"""Longest answer, several times what people read; it is stored with the run."""

_LEAST_BYTES = 64
# Of so few messages in a list the largest is made smaller; of more, half go.
_FEW = 4
_MAX_DROPPED, _MAX_DROPPED_CHARS = 50, 100
_CUT = "\n\n(The answer was longer and is cut off here.)"

MAX_CALL_TOKENS = 100_000_000
"""Most tokens that one call of a service is believed to have consumed, of each kind."""
_MAX_USAGE = {
    "model_calls": 1_000_000,
    "input_tokens": MAX_CALL_TOKENS,
    "output_tokens": MAX_CALL_TOKENS,
    "api_calls": 1_000_000,
    "cost_micros": 10**12,
    "unreported_tokens": MAX_CALL_TOKENS,
    "cached_input_tokens": MAX_CALL_TOKENS,
    "abandoned_calls": 1_000_000,
}
_MAX_DURATION_NS = 30 * 24 * 3600 * 10**9
_MAX_MODELS, _MAX_MODEL_CHARS = 16, 200
_MAX_COLUMNS = _MAX_FIELDS = 10_000


def result_problem(result: AgentResult) -> str | None:
    """What makes an agent's result unusable, in words for people; None if it is fine."""
    if result.HasField("table") and (problem := _table_problem(result.table)):
        return f"its table {problem}"
    if result.HasField("start_time") and not is_time(result.start_time):
        return "its start time is not a time"
    if max(len(result.data.fields), len(result.partial_data.fields)) > _MAX_FIELDS:
        return f"its data have more than {_MAX_FIELDS} fields"
    try:
        extent(_values_of(result))
    except OutOfBounds as error:
        return f"it {error}"
    return None


def clamp_result(result: AgentResult) -> list[str]:
    """Clamp the numbers of a result, in place; the names of those that were not possible.

    A table of too many cells is cut, which it says itself.
    """
    clamped = [f"usage.{name}" for name in clamp_usage(result.usage)]
    if (possible := unit(result.confidence)) != result.confidence:
        result.confidence = possible
        clamped.append("confidence")
    if clamp_sources(result.sources):
        clamped.append("sources")
    if result.HasField("table"):
        _keep_rows(result.table, MAX_VALUES // max(1, len(result.table.columns)))
    return clamped


def clamp_usage(usage: Usage) -> list[str]:
    """Clamp what a call is said to have consumed, in place; the fields that were not possible."""
    clamped = []
    for name, most in _MAX_USAGE.items():
        said = getattr(usage, name)
        if not 0 <= said <= most:
            setattr(usage, name, max(0, min(said, most)))
            clamped.append(name)
    nanos = usage.duration.ToNanoseconds()
    if not 0 <= nanos <= _MAX_DURATION_NS:
        usage.duration.FromNanoseconds(max(0, min(nanos, _MAX_DURATION_NS)))
        clamped.append("duration")
    if len(usage.models) > _MAX_MODELS or any(len(m) > _MAX_MODEL_CHARS for m in usage.models):
        usage.models[:] = [name[:_MAX_MODEL_CHARS] for name in usage.models[:_MAX_MODELS]]
        clamped.append("models")
    return clamped


def clamp_sources(sources: Iterable[Source]) -> bool:
    """Clamp the numbers of sources, in place; whether one was not possible."""
    clamped = False
    for source in sources:
        if (possible := unit(source.relevance)) != source.relevance:
            source.relevance, clamped = possible, True
        if source.page < 0:
            source.page, clamped = 0, True
    return clamped


def unit(number: float) -> float:
    """``number`` between 0 and 1; 0 for what is none."""
    return 0.0 if math.isnan(number) else max(0.0, min(number, 1.0))


def sound_trace(events: Iterable[TraceEvent], now: datetime) -> list[TraceEvent]:
    """The events that there is room for, those without a usable time at ``now``.

    Details that cannot be stored are left out; what happened is in the message.
    """
    found: list[TraceEvent] = []
    room = MAX_TRACE_BYTES
    for event in events:
        room -= event.ByteSize()
        if room < 0 or len(found) >= MAX_TRACE_EVENTS:
            break
        if not event.HasField("create_time") or not is_time(event.create_time):
            event.create_time.FromDatetime(now)
        try:
            extent(event.data.values())
        except OutOfBounds:
            event.data.clear()
        found.append(event)
    return found


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
    while (excess := sum(copy.ByteSize() for copy in copies) - budget) > 0:
        if not _shrink(max(copies, key=AgentResult.ByteSize), excess):
            break
    return copies


def fit_output(output: ComposerOutput, now: datetime) -> None:
    """Bring what a composer says within bounds, in place; an answer that is cut says so."""
    output.DiscardUnknownFields()
    text = output.answer.encode()
    if len(text) > MAX_ANSWER_BYTES:
        output.answer = text[:MAX_ANSWER_BYTES].decode(errors="ignore") + _CUT
    clamp_sources(output.sources)
    trace = sound_trace(output.trace, now)
    del output.trace[:]
    if output.HasField("data"):
        _keep_rows(output.data, MAX_VALUES // max(1, len(output.data.columns)))
        if _table_problem(output.data):
            output.ClearField("data")
    shorten(output, MAX_RESULTS_BYTES + MAX_ANSWER_BYTES)
    output.trace.extend(trace)


def shorten(message: Message, limit: int) -> None:
    """Halve the largest text or list of any message until it fits into ``limit`` bytes."""
    while message.ByteSize() > limit and _halve(message):
        pass


def room_for_inputs(state: RunState) -> int:
    """Bytes that the references of a step may resolve to."""
    rest = MAX_RUN_INPUT_BYTES - state.held_bytes
    return max(MAX_RESULT_BYTES, min(MAX_INPUT_BYTES, rest))


def fit_response(response: OrchestratorResponse) -> None:
    """Cut trace and results in ``response``, in place, until clients can receive all of it.

    Whoever asks for the trace gets it twice, in the results and merged.
    """
    room = MAX_TRACE_BYTES
    for count, event in enumerate(response.trace):
        room -= event.ByteSize()
        if room < 0:
            del response.trace[count:]
            break
    results = list(response.agent_results)
    traced = sum(event.ByteSize() for result in results for event in result.trace)
    rest = response.ByteSize() - sum(result.ByteSize() for result in results) + traced
    fitting = fit(results, max(0, MAX_RESPONSE_BYTES - rest))
    del response.agent_results[:]
    response.agent_results.extend(fitting)


def _shrink(result: AgentResult, excess: int) -> bool:
    """Make the result smaller by its largest part; False if nothing is left to take away.

    Of its fields the largest go, until ``excess`` bytes or half of them are gone.
    """
    table = result.table.ByteSize() if result.HasField("table") else 0
    fields = {
        (part, name): value.ByteSize()
        for part in ("data", "partial_data")
        for name, value in getattr(result, part).fields.items()
        if name != "truncated_fields"
    }
    traced = sum(event.ByteSize() for event in result.trace)
    biggest = max(table, traced, *fields.values())
    if biggest < _LEAST_BYTES:
        return _halve(result)
    if biggest == traced:
        del result.trace[: max(1, len(result.trace) // 2)]
    elif biggest == table:
        _keep_rows(result.table, len(result.table.rows) // 2)
        if not result.table.rows:
            result.ClearField("table")
    else:
        left = min(excess, sum(fields.values()) // 2)
        for part, name in sorted(fields, key=lambda key: fields[key], reverse=True):
            fields_of = getattr(result, part).fields
            left -= fields[part, name] + len(name)
            del fields_of[name]
            dropped = fields_of["truncated_fields"].list_value.values
            if len(dropped) < _MAX_DROPPED:
                dropped.add(string_value=name[:_MAX_DROPPED_CHARS])
            if left <= 0:
                break
    return True


def _keep_rows(table: Table, most: int) -> None:
    """Cut the table to ``most`` rows, which it says then."""
    if len(table.rows) > most:
        del table.rows[most:]
        table.truncated = True
    table.row_count = len(table.rows)


def _halve(message: Message) -> bool:
    """Take half of its largest text or list away; False if there is none worth it."""
    sizes = {
        descriptor.name: type(message)(**{descriptor.name: value}).ByteSize()
        for descriptor, value in message.ListFields()
        if hasattr(value, "__len__") or hasattr(value, "ByteSize")
    }
    name = max(sizes, key=lambda key: sizes[key], default="")
    if sizes.get(name, 0) < _LEAST_BYTES:
        return False
    value = getattr(message, name)
    if isinstance(value, str | bytes):
        setattr(message, name, value[: len(value) // 2])
    elif hasattr(value, "keys"):
        for key in list(value)[len(value) // 2 :]:
            del value[key]
    elif hasattr(value, "ByteSize"):
        if not _halve(value):
            message.ClearField(name)
    elif len(value) > _FEW or isinstance(value[0], str) or not _halve(max(value, key=_size)):
        del value[len(value) // 2 :]
    return True


def _size(message: Message) -> int:
    return message.ByteSize()


def _table_problem(table: Table) -> str | None:
    """What is wrong with a table, in words; None if nothing is."""
    if len(table.columns) > _MAX_COLUMNS:
        return f"has more than {_MAX_COLUMNS} columns"
    names = [column.name for column in table.columns]
    if len(set(names)) < len(names):
        return "has two columns of the same name"
    if any(len(row.values) != len(names) for row in table.rows):
        return "has a row with more or fewer cells than columns"
    try:
        extent(value for row in table.rows for value in row.values)
    except OutOfBounds as error:
        return str(error)
    return None


def _values_of(result: AgentResult) -> Iterator[Value]:
    """All values of a result beside its table."""
    performed = result.performed_actions
    maps: list[Any] = [result.data, result.partial_data, *(each.result for each in performed)]
    maps += [action.arguments for action in result.proposed_actions]
    maps += [each.action.arguments for each in performed]
    return chain(result.error.details.values(), *(each.fields.values() for each in maps))
