"""References between steps: ``@{outputs.STEP_ID.FIELD}`` (SPEC B-18, C-16, C-17). Pure.

A string that is nothing but one reference takes the referred value with its type; a reference
inside a longer string is rendered as text. ``FIELD`` may reach into maps with dots.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Table, Value, ValueList, ValueMap
from bos_chassis.values import render_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bos.planner.v1 import Step

_REFERENCE = re.compile(
    r"@\{outputs\.(?P<step>[A-Za-z][A-Za-z0-9_-]{0,63})\.(?P<field>[A-Za-z0-9_][A-Za-z0-9_.-]*)\}"
)
_OPENING = "@{"
_BROKEN_OPENING = "@ {"
_TABLE_FIELDS = ("table", "rows")


class ReferenceUnresolved(Exception):
    """A reference names something that is not there. The message is safe for people."""


def references_of(step: Step) -> set[str]:
    """Ids of the steps whose output ``step`` cannot do without."""
    return {match["step"] for text in _texts_of(step) for match in _REFERENCE.finditer(text)}


def malformed_references(step: Step) -> list[str]:
    """Pieces of text that open a reference without being one."""
    return [
        text[start : start + 60]
        for text in _texts_of(step)
        for start in _openings(text)
        if not _REFERENCE.match(text, start)
    ]


def without_references(text: str) -> str:
    """``text`` of a person, in which nothing can be taken for a reference."""
    return text.replace(_OPENING, _BROKEN_OPENING)


def resolve_text(text: str, outputs: Mapping[str, AgentResult]) -> str:
    """``text`` with every reference rendered.

    Raises:
        ReferenceUnresolved: unknown step, step that did not succeed, or unknown field (C-17).
    """
    return _REFERENCE.sub(lambda match: render_value(_look_up(match, outputs)), text)


def resolve_value(value: Value, outputs: Mapping[str, AgentResult]) -> Value:
    """``value`` with every reference in it resolved, at any depth.

    Raises:
        ReferenceUnresolved: as :func:`resolve_text`.
    """
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        whole = _REFERENCE.fullmatch(value.string_value)
        if whole:
            return _look_up(whole, outputs)
        return Value(string_value=resolve_text(value.string_value, outputs))
    if kind == "list_value":
        items = [resolve_value(item, outputs) for item in value.list_value.values]
        return Value(list_value=ValueList(values=items))
    if kind == "map_value":
        fields = {k: resolve_value(v, outputs) for k, v in value.map_value.fields.items()}
        return Value(map_value=ValueMap(fields=fields))
    return value


def output_field(result: AgentResult, name: str) -> Value | None:
    """The field of ``result`` that a reference names; None if there is none.

    The agent's own data come first, then what every result offers: ``answer``, and of a table
    ``table`` or ``rows`` (row maps), ``columns`` (names) and ``row_count``. Made on demand, since
    rows are many and most references name something small.
    """
    if name in result.data.fields:
        return result.data.fields[name]
    if name == "answer":
        return Value(string_value=result.answer)
    if not result.HasField("table"):
        return None
    if name in _TABLE_FIELDS:
        return _rows(result.table)
    if name == "columns":
        names = [Value(string_value=column.name) for column in result.table.columns]
        return Value(list_value=ValueList(values=names))
    if name == "row_count":
        return Value(int64_value=result.table.row_count)
    return None


def _look_up(match: re.Match[str], outputs: Mapping[str, AgentResult]) -> Value:
    step_id, path = match["step"], match["field"]
    result = outputs.get(step_id)
    if result is None:
        raise ReferenceUnresolved(f'Step "{step_id}" has no output that could be used.')
    if result.status != AGENT_EXECUTION_STATUS_SUCCEEDED:
        raise ReferenceUnresolved(f'Step "{step_id}" did not succeed, so its output is missing.')
    # A name with dots may be a field of its own; otherwise the dots descend into maps.
    value = output_field(result, path)
    if value is None and "." in path:
        head, *rest = path.split(".")
        value = output_field(result, head)
        for name in rest:
            value = value.map_value.fields.get(name) if value is not None else None
    if value is None:
        raise ReferenceUnresolved(f'Step "{step_id}" has no output field "{path}".')
    return value


def _rows(table: Table) -> Value:
    names = [column.name for column in table.columns]
    rows = [
        Value(map_value=ValueMap(fields=dict(zip(names, row.values, strict=True))))
        for row in table.rows
    ]
    return Value(list_value=ValueList(values=rows))


def _texts_of(step: Step) -> Iterator[str]:
    yield step.task
    for name in sorted(step.sub_task_input):
        yield from _texts(step.sub_task_input[name])


def _texts(value: Value) -> Iterator[str]:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        yield value.string_value
    elif kind == "list_value":
        for item in value.list_value.values:
            yield from _texts(item)
    elif kind == "map_value":
        for name in sorted(value.map_value.fields):
            yield from _texts(value.map_value.fields[name])


def _openings(text: str) -> Iterator[int]:
    start = text.find(_OPENING)
    while start >= 0:
        yield start
        start = text.find(_OPENING, start + 1)
