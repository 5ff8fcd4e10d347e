"""References between steps, ``@{outputs.STEP_ID.FIELD}``: parsing and resolution. Pure.

A string that is exactly one reference becomes the referenced value with its type; a reference
inside a longer string is rendered as text. Dots in ``FIELD`` descend into maps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Artefact, Table, Value, ValueList, ValueMap
from bos.planner.v1 import Step
from bos_chassis.values import MAX_DEPTH, render_value
from bos_plans.bounds import MAX_VALUES, OutOfBounds, extent

_REFERENCE = re.compile(
    r"@\{outputs\.(?P<step>[A-Za-z][A-Za-z0-9_-]{0,63})\.(?P<field>[A-Za-z0-9_][A-Za-z0-9_.-]*)\}"
)
_MAX_READABLE_CHARS = 160
_OPENING = "@{"
_BROKEN_OPENING = "@ {"
_TABLE_FIELDS = ("table", "rows")


class ReferenceUnresolved(Exception):
    """A reference to a step or field that does not exist; the message is safe to show to users."""


class InputTooLarge(Exception):
    """Resolved references exceed the input limit of a step; the message is safe for users."""


def references_of(step: Step) -> set[str]:
    """Ids of the steps that ``step`` refers to."""
    return {match["step"] for text in _texts_of(step) for match in _REFERENCE.finditer(text)}


def number_of_references(step: Step) -> int:
    """Number of references in the step, repetitions included."""
    return sum(len(_REFERENCE.findall(text)) for text in _texts_of(step))


def malformed_references(step: Step) -> list[str]:
    """Text fragments that begin like a reference but are malformed."""
    return [
        text[start : start + 60]
        for text in _texts_of(step)
        for start in _openings(text)
        if not _REFERENCE.match(text, start)
    ]


def without_references(text: str) -> str:
    """Escape ``text`` of a user, so that nothing in it is taken for a reference."""
    return text.replace(_OPENING, _BROKEN_OPENING)


def readable_task(task: str) -> str:
    """A task of a plan in words for users, with ``…`` for each reference; one line, bounded."""
    line = " ".join(_REFERENCE.sub("…", task).split()).rstrip(".")
    return line if len(line) <= _MAX_READABLE_CHARS else f"{line[: _MAX_READABLE_CHARS - 1]}…"


class References:
    """Resolves references to outputs of steps, within limits of size and time.

    Each output is looked up, measured and rendered once, however often it is referenced, and its
    size is counted before anything is built from it.

    Args:
        outputs: Results by step id.
        max_bytes: Total size of everything resolved.
    """

    def __init__(self, outputs: Mapping[str, AgentResult], max_bytes: int) -> None:
        self._outputs = outputs
        self._max_bytes = self._bytes_left = max_bytes
        self._values_left = MAX_VALUES
        self._found: dict[str, _Found] = {}

    def text(self, text: str) -> str:
        """``text`` with every reference rendered.

        Raises:
            ReferenceUnresolved: unknown step, step that did not succeed, or unknown field.
            InputTooLarge: the resolved text exceeds the limits.
        """
        self._take(len(text))
        return _REFERENCE.sub(self._rendered, text)

    def value(self, value: Value, depth: int = 0) -> Value:
        """``value`` with every reference resolved; one that is a whole string keeps its type.

        Raises:
            ReferenceUnresolved, InputTooLarge: as :meth:`text`.
        """
        kind = value.WhichOneof("kind")
        if kind == "string_value":
            whole = _REFERENCE.fullmatch(value.string_value)
            if not whole:
                return Value(string_value=self.text(value.string_value))
            found = self._look_up(whole)
            self._take(found.size)
            if depth + found.depth > MAX_DEPTH:
                raise InputTooLarge(
                    f"Its inputs nest lists and maps more than {MAX_DEPTH} deep once "
                    f"{whole[0]} is resolved."
                )
            return found.value
        if kind == "list_value":
            items = [self.value(item, depth + 1) for item in value.list_value.values]
            return Value(list_value=ValueList(values=items))
        if kind == "map_value":
            fields = value.map_value.fields
            resolved = {name: self.value(fields[name], depth + 1) for name in fields}
            return Value(map_value=ValueMap(fields=resolved))
        self._take(value.ByteSize())
        return value

    def _rendered(self, match: re.Match[str]) -> str:
        found = self._look_up(match)
        # At least as long as its parts, whose length is known before it is built.
        self._take(found.size)
        if found.text is None:
            found.text = render_value(found.value)
        self._take(max(0, len(found.text) - found.size))
        return found.text

    def _take(self, size: int) -> None:
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise InputTooLarge(
                f"What its inputs refer to is larger than {self._max_bytes} bytes in all."
            )

    def _look_up(self, match: re.Match[str]) -> _Found:
        """Output that the reference names, counted at the first look-up.

        Raises:
            ReferenceUnresolved: there is no such output.
            InputTooLarge: the outputs looked up hold too many values.
        """
        if match[0] not in self._found:
            value = self._named(match["step"], match["field"])
            try:
                values, depth = extent([value], max_values=self._values_left)
            except OutOfBounds:
                raise self._too_many() from None
            self._values_left -= values
            self._found[match[0]] = _Found(value, value.ByteSize(), depth)
        return self._found[match[0]]

    def _named(self, step_id: str, path: str) -> Value:
        result = self._outputs.get(step_id)
        if result is None:
            raise ReferenceUnresolved(f'Step "{step_id}" has no output that could be used.')
        if result.status != AGENT_EXECUTION_STATUS_SUCCEEDED:
            raise ReferenceUnresolved(
                f'Step "{step_id}" did not succeed, so its output is missing.'
            )
        head = path if path in result.data.fields else path.partition(".")[0]
        if head in _TABLE_FIELDS and head not in result.data.fields:
            cells = len(result.table.rows) * (len(result.table.columns) + 1)
            if cells > self._values_left:
                raise self._too_many()
        # A field's name may itself hold dots; otherwise the dots descend into maps.
        value = output_field(result, path)
        if value is None and "." in path:
            head, *rest = path.split(".")
            value = output_field(result, head)
            for name in rest:
                value = value.map_value.fields.get(name) if value is not None else None
        if value is None:
            raise ReferenceUnresolved(f'Step "{step_id}" has no output field "{path}".')
        return value

    def _too_many(self) -> InputTooLarge:
        return InputTooLarge(f"What its inputs refer to holds more than {MAX_VALUES} values.")


@dataclass(slots=True)
class _Found:
    """Output that a reference names."""

    value: Value
    size: int
    depth: int
    text: str | None = None


def output_field(result: AgentResult, name: str) -> Value | None:
    """Field of ``result`` that a reference names; None if there is none.

    The agent's own data take precedence over the fields of every result: ``answer``, and of a
    table ``table`` or ``rows`` (row maps), ``columns`` (names) and ``row_count``, and of stored
    files ``files`` (maps of name, media type, size and digest). Built on demand, because rows
    are many and most references name something small.
    """
    if name in result.data.fields:
        return result.data.fields[name]
    if name == "answer":
        return Value(string_value=result.answer)
    if name == "files" and result.files:
        return Value(list_value=ValueList(values=[_file(file) for file in result.files]))
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


def _file(file: Artefact) -> Value:
    fields = {
        "name": Value(string_value=file.name),
        "media_type": Value(string_value=file.media_type),
        "size_bytes": Value(int64_value=file.size_bytes),
        "digest": Value(string_value=file.digest),
    }
    return Value(map_value=ValueMap(fields=fields))


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
