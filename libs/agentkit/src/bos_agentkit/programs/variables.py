"""Variables of model-written programs: outputs of other steps, the plan's input, the date.

Values are sent beside the program, as its variables, and never pasted into its code.
"""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from bos_agentkit.task import AgentTask
from bos_chassis.values import to_value, value_to_json
from bos_llm.prompts import current_day

TODAY = "today"
_INPUT_ORIGIN = "input of the task"
_MAX_TYPE_CHARS = 400
# The first rows suffice for the prompt; the program has all values.
_MAX_PREVIEW_CHARS = 200
_MAX_LISTED = 40
_MAX_NAME_CHARS = 60
# Reserved names.
_TAKEN = frozenset(
    {"Decimal", "date", "datetime", "decimal", "math", "result"}
    | {name for name in dir(builtins) if name.islower()}
)


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a program."""

    name: str
    value: Any
    origin: str
    """Origin of the value, shown to the model."""


def task_variables(task: AgentTask, clock: Callable[[], datetime]) -> tuple[Variable, ...]:
    """Variables of a program for ``task``: the plan's input, outputs of other steps, the date.

    Names of the plan's input take precedence; clashing names get a number.
    """
    names = _Names()
    variables = [
        Variable(names.free(name), value, _INPUT_ORIGIN)
        for name, value in task.arguments.items()
        if name != TODAY
    ]
    variables += [
        Variable(names.free(step), data, f"output of step {step}")
        for step, data in task.dependencies.items()
    ]
    return (*variables, Variable(TODAY, _today(task, clock), "the current date"))


def mentioned_values(variables: Iterable[Variable], code: str) -> dict[str, Any]:
    """Values of the variables that ``code`` mentions; others are not sent."""
    words = set(re.findall(r"\w+", code))
    return {
        variable.name: variable.value
        for variable in variables
        if variable.name in words or variable.name == TODAY
    }


def without_repeated(variables: Iterable[Variable]) -> list[Variable]:
    """Variables to describe: without outputs of steps of which a part is an input already.

    The program has all of them, but the part that the plan selected is the relevant one.
    """
    variables = list(variables)
    inputs = [each.value for each in variables if each.origin == _INPUT_ORIGIN]
    # Numbers and texts may be equal by chance; lists and maps hardly are.
    handed_on = [value for value in inputs if value and isinstance(value, list | dict)]

    def is_repeated(variable: Variable) -> bool:
        if variable.origin == _INPUT_ORIGIN or not isinstance(variable.value, dict):
            return False
        parts = [variable.value, *variable.value.values()]
        return any(part == given for given in handed_on for part in parts)

    return [each for each in variables if not is_repeated(each)]


def describe(variables: Iterable[Variable]) -> str:
    """One line per variable: name, type, origin and truncated value."""
    listed = list(variables)
    lines = [_described(one) for one in listed[:_MAX_LISTED]]
    if len(listed) > _MAX_LISTED:
        lines.append(f"- and {len(listed) - _MAX_LISTED} more")
    return "\n".join(lines)


def _described(one: Variable) -> str:
    kind = _cut(type_text(one.value), _MAX_TYPE_CHARS)
    return f"- {one.name}: {kind} ({one.origin}), begins {_preview(one.value)}"


def type_text(value: Any) -> str:
    """Python type of ``value``, with the keys of maps."""
    match value:
        case None:
            return "None"
        case dict():
            return f"dict with keys {_keys(value)}" if value else "empty dict"
        case [dict() as first, *_]:
            return f"list of {len(value)} dicts with keys {_keys(first)}"
        case [first, *_]:
            return f"list of {len(value)} {type(first).__name__}"
        case []:
            return "empty list"
        case Decimal():
            return "Decimal"
        case _:
            return type(value).__name__


class _Names:
    """Makes valid, unique variable names."""

    def __init__(self) -> None:
        self._used = {TODAY}

    def free(self, wanted: str) -> str:
        stem = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_")[:_MAX_NAME_CHARS]
        if not stem or not stem[0].isalpha():
            stem = f"value_{stem}" if stem else "value"
        name = stem if self._is_free(stem) else f"{stem}_data"
        number = 1
        while not self._is_free(name):
            number += 1
            name = f"{stem}_{number}"
        self._used.add(name)
        return name

    def _is_free(self, name: str) -> bool:
        return name not in self._used and name not in _TAKEN and not keyword.iskeyword(name)


def _today(task: AgentTask, clock: Callable[[], datetime]) -> date:
    given = task.arguments.get(TODAY)
    if isinstance(given, datetime):
        return given.date()
    if isinstance(given, date):
        return given
    return current_day(task.input.context.fields) or clock().astimezone(UTC).date()


def _keys(fields: Mapping[str, Any]) -> str:
    shown = [f"{name} ({type_text(value)})" for name, value in fields.items()]
    return ", ".join(shown[:_MAX_LISTED])


def _preview(value: Any) -> str:
    text = json.dumps(value_to_json(to_value(value)), ensure_ascii=False)
    return _cut(text, _MAX_PREVIEW_CHARS)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + "…"
