"""Limits of results: numbers, nesting, count and size. Pure.

What comes in here is stored and folded again and again, so nothing that cannot be worked with later
may pass. Numbers are clamped, since the rest of a result is worth keeping; what is too deep, too
wide or contradicts itself makes a result unusable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from copy import deepcopy
from datetime import datetime
from itertools import accumulate, chain
from typing import Any

from google.protobuf.message import Message

from bos.agent.v1 import AgentResult
from bos.common.v1 import Table, TraceEvent, Usage, Value, ValueMap
from bos.composer.v1 import ComposerOutput
from bos.gateway.v1 import AgentRequest, OrchestratorResponse
from bos_gateway.core.run_state import RunState
from bos_plans import MAX_VALUES, OutOfBounds, extent, is_time

MAX_RESULT_BYTES = 256 * 1024
MAX_RESULTS_BYTES = 2 * 1024 * 1024
MAX_INPUT_BYTES = 2 * 1024 * 1024
"""Of what references of a step resolve to; its dispatch is an event of the log."""
MAX_RUN_INPUT_BYTES = 16 * 1024 * 1024
"""Results and inputs of a run beyond which a step's inputs may have ``MAX_RESULT_BYTES``."""
MAX_REQUEST_BYTES = 8 * 1024 * 1024 - 4096
"""Of what a step is sent: agents take 8 MiB by default."""
MAX_RESPONSE_BYTES = 7 * 512 * 1024
"""Of a whole response: gRPC clients take 4 MiB by default."""
MAX_CLARIFICATION_BYTES = 16 * 1024
"""Of the questions of one step, or of the planner; those of all steps are sent together."""
MAX_TRACE_EVENTS = 500
"""Trace events kept of one step; agents that write more lose the rest."""
MAX_TRACE_BYTES = 1024 * 1024
"""Size of the trace events kept of one step."""
MAX_ANSWER_BYTES = 256 * 1024
"""Longest answer, several times what users read; it is stored with the run."""

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
_MAX_SOURCE = {"relevance": 1, "page": 2**31 - 1}
MAX_CONFIDENCE = {"confidence": 1}
_MAX_DURATION = {"seconds": 30 * 24 * 3600, "nanos": 10**9 - 1}
_MAX_MODELS, _MAX_MODEL_CHARS = 16, 200
_MAX_COLUMNS = _MAX_FIELDS = 10_000
_ASKED_BOUNDS = ("max_rows", "max_columns")


def result_problem(result: AgentResult) -> str | None:
    """Problem of an agent's result that makes it unusable, as user text; None if there is none."""
    if result.HasField("table") and (problem := _table_problem(result.table)):
        return f"its table {problem}"
    if result.HasField("start_time") and not is_time(result.start_time):
        return "its start time is not a time"
    if max(len(result.data.fields), len(result.partial_data.fields)) > _MAX_FIELDS:
        return f"its data have more than {_MAX_FIELDS} fields"
    problem = values_problem(_values_of(result))
    return f"it {problem}" if problem else None


def values_problem(values: Iterable[Any]) -> str | None:
    """What is too deep or too wide about values, in words that follow "it"; None if nothing is."""
    try:
        extent(values)
    except OutOfBounds as error:
        return str(error)
    return None


def clamp(message: Message, most: Mapping[str, int]) -> list[str]:
    """Bring numbers of a message between 0 and ``most``, in place; the fields that were not."""
    clamped = []
    for name, bound in most.items():
        said = getattr(message, name)
        possible = 0 if math.isnan(said) else max(0, min(said, bound))
        if possible != said:
            setattr(message, name, possible)
            clamped.append(name)
    return clamped


def clamp_result(result: AgentResult) -> list[str]:
    """Clamp the numbers of a result, in place; the names of those that were not possible.

    A table of too many cells is cut, which it says itself.
    """
    clamped = [f"usage.{name}" for name in clamp_usage(result.usage)]
    clamped += clamp(result, MAX_CONFIDENCE)
    if [source for source in result.sources if clamp(source, _MAX_SOURCE)]:
        clamped.append("sources")
    if result.HasField("table"):
        _keep_rows(result.table)
    return clamped


def clamp_usage(usage: Usage) -> list[str]:
    """Clamp what a call is said to have consumed, in place; the fields that were not possible."""
    clamped = clamp(usage, _MAX_USAGE)
    if clamp(usage.duration, _MAX_DURATION):
        clamped.append("duration")
    if len(usage.models) > _MAX_MODELS or any(len(m) > _MAX_MODEL_CHARS for m in usage.models):
        usage.models[:] = [name[:_MAX_MODEL_CHARS] for name in usage.models[:_MAX_MODELS]]
        clamped.append("models")
    return clamped


def sound_trace(events: MutableSequence[TraceEvent], now: datetime) -> None:
    """Keep the events that there is room for, in place; those without a usable time are of ``now``.

    Details that cannot be stored are left out; what happened is in the message.
    """
    del events[min(_fitting(events), MAX_TRACE_EVENTS) :]
    for event in events:
        if not event.HasField("create_time") or not is_time(event.create_time):
            event.create_time.FromDatetime(now)
        if values_problem(event.data.values()):
            event.data.clear()


def _fitting(events: Sequence[TraceEvent]) -> int:
    """How many of the events there is room for, from the first on."""
    sizes = accumulate(event.ByteSize() for event in events)
    return sum(size <= MAX_TRACE_BYTES for size in sizes)


def asked_bounds(request: AgentRequest) -> dict[str, int]:
    """The bounds that the request sets, by name; without one the services' own hold."""
    return {name: getattr(request, name) for name in _ASKED_BOUNDS if request.HasField(name)}


def bound_table(table: Table, request: AgentRequest) -> None:
    """Cut a table to the rows and columns that the request allows, in place; it says so then."""
    bounds = asked_bounds(request)
    rows = bounds.get("max_rows", len(table.rows))
    columns = bounds.get("max_columns", len(table.columns))
    if len(table.rows) <= rows and len(table.columns) <= columns:
        return
    del table.rows[rows:]
    del table.columns[columns:]
    for row in table.rows:
        del row.values[columns:]
    table.row_count = len(table.rows)
    table.truncated = True


def fit(results: Sequence[AgentResult], budget: int) -> list[AgentResult]:
    """The results, with their largest parts cut until all of them fit into ``budget`` bytes.

    Cut tables say ``truncated``; fields that are dropped are named in ``data["truncated_fields"]``.
    Results that fit are handed back as they are.
    """
    if sum(result.ByteSize() for result in results) <= budget:
        return list(results)
    copies = [deepcopy(result) for result in results]
    while (excess := sum(map(_size, copies)) - budget) > 0:
        if not _shrink(max(copies, key=_size), excess):
            break
    return copies


def fit_output(output: ComposerOutput, now: datetime) -> None:
    """Bring what a composer says within bounds, in place; what is cut says so."""
    output.DiscardUnknownFields()
    text = output.answer.encode()
    if len(text) > MAX_ANSWER_BYTES:
        output.answer = text[:MAX_ANSWER_BYTES].decode(errors="ignore") + _CUT
    for source in output.sources:
        clamp(source, _MAX_SOURCE)
    sound_trace(output.trace, now)
    trace = list(output.trace)  # which has its own bound
    del output.trace[:]
    if output.HasField("data"):
        _keep_rows(output.data)
        if _table_problem(output.data):
            output.ClearField("data")
    shorten(output, MAX_RESULTS_BYTES + MAX_ANSWER_BYTES)
    output.trace.extend(trace)


def shorten(message: Message, limit: int) -> None:
    """Make the largest part of any message smaller until it fits into ``limit`` bytes."""
    while (excess := message.ByteSize() - limit) > 0 and _shrink(message, excess):
        pass


def room_for_inputs(state: RunState) -> int:
    """Bytes that the references of a step may resolve to."""
    rest = MAX_RUN_INPUT_BYTES - state.held_bytes
    return max(MAX_RESULT_BYTES, min(MAX_INPUT_BYTES, rest))


def fit_response(response: OrchestratorResponse) -> None:
    """Cut trace and results in ``response``, in place, until clients can receive all of it.

    Clients that ask for the trace get it twice, in the results and merged.
    """
    del response.trace[_fitting(response.trace) :]
    results = list(response.agent_results)
    traced = sum(event.ByteSize() for result in results for event in result.trace)
    rest = response.ByteSize() - sum(result.ByteSize() for result in results) + traced
    fitting = fit(results, max(0, MAX_RESPONSE_BYTES - rest))
    del response.agent_results[:]
    response.agent_results.extend(fitting)


def _shrink(message: Message, excess: int) -> bool:
    """Make the largest part of a message smaller; False if there is none worth it.

    Tables and values say that they were cut. Of texts, lists and rows half goes.
    """
    if isinstance(message, Table):
        _keep_rows(message, len(message.rows) // 2)
        return len(message.rows) > 0
    if isinstance(message, ValueMap) and _drop_fields(message, excess):
        return True
    sizes: dict[str, int] = {}
    for field, value in message.ListFields():
        if isinstance(value, Message):
            sizes[field.name] = _size(value)
        elif hasattr(value, "__len__"):
            sizes[field.name] = _size(type(message)(**{field.name: value}))
    # What says that it was cut goes first: of a text, or of actions, the cut would not be visible.
    marked = {
        name: size
        for name, size in sizes.items()
        if size >= _LEAST_BYTES
        and (name == "trace" or isinstance(getattr(message, name), Table | ValueMap))
    }
    sizes = marked or sizes
    name = max(sizes, key=lambda key: sizes[key], default="")
    if sizes.get(name, 0) < _LEAST_BYTES:
        return False
    value = getattr(message, name)
    if isinstance(value, str | bytes):
        setattr(message, name, value[: len(value) // 2])
    elif hasattr(value, "keys"):
        for key in list(value)[len(value) // 2 :]:
            del value[key]
    elif isinstance(value, Message):
        if not _shrink(value, excess):
            message.ClearField(name)
    elif name == "trace":  # how it ended says more than how it began
        del value[: max(1, len(value) // 2)]
    else:
        few = len(value) <= _FEW and isinstance(value[0], Message)
        if not few or not _shrink(max(value, key=_size), excess):
            del value[len(value) // 2 :]
    return True


def _drop_fields(values: ValueMap, excess: int) -> bool:
    """Drop the largest fields until ``excess`` bytes or half of all are gone; False without any."""
    sizes = {name: len(name) + _size(value) for name, value in values.fields.items()}
    sizes.pop("truncated_fields", None)
    left = min(excess, sum(sizes.values()) // 2)
    for name in sorted(sizes, key=lambda key: sizes[key], reverse=True):
        del values.fields[name]
        dropped = values.fields["truncated_fields"].list_value.values
        if len(dropped) < _MAX_DROPPED:
            dropped.add(string_value=name[:_MAX_DROPPED_CHARS])
        left -= sizes[name]
        if left <= 0:
            break
    return bool(sizes)


def _keep_rows(table: Table, most: int = MAX_VALUES) -> None:
    """Cut the table to ``most`` rows, or to the cells that it may have; it says so then."""
    most = min(most, MAX_VALUES // max(1, len(table.columns)))
    if len(table.rows) > most:
        del table.rows[most:]
        table.truncated = True
    table.row_count = len(table.rows)


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
    return values_problem(value for row in table.rows for value in row.values)


def _values_of(result: AgentResult) -> Iterator[Value]:
    """All values of a result beside its table."""
    performed = result.performed_actions
    maps: list[Any] = [result.data, result.partial_data, *(each.result for each in performed)]
    maps += [action.arguments for action in result.proposed_actions]
    maps += [each.action.arguments for each in performed]
    return chain(result.error.details.values(), *(each.fields.values() for each in maps))
