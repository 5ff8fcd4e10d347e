"""The texts that a step works on: of its input, else of earlier steps. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos_chassis.values import render_value, to_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from bos_agentkit import AgentTask

# Of the data of an earlier step, what holds its texts, the best first.
_TEXT_FIELDS = ("text", "pages", "chunks", "answer", "rows")
_ITEM_FIELDS = ("text", "content", "snippet", "excerpt")


@dataclass(frozen=True, slots=True)
class Source:
    """One text with its name: of an argument or a step."""

    name: str
    text: str


def sources_of(task: AgentTask, options: Collection[str]) -> list[Source]:
    """Texts of the plan's input beside ``options``, else those of earlier steps; none if neither.

    Raises:
        InvalidArgument: an input is invalid; names it.
    """
    given = {name: value for name, value in task.arguments.items() if name not in options}
    found = [*_named(given)]
    return found or [*_named({step: _of_step(data) for step, data in task.dependencies.items()})]


def _named(values: Mapping[str, Any]) -> Iterator[Source]:
    for name, value in values.items():
        if isinstance(value, list) and name == "texts":
            texts = [_text(each) for each in value]
            yield from (Source(f"text {n}", text) for n, text in enumerate(texts, 1) if text)
        elif isinstance(value, dict) and name == "texts":
            yield from _named({str(key): each for key, each in value.items()})
        elif text := _text(value):
            yield Source(name, text)


def _of_step(data: Mapping[str, Any]) -> Any:
    return next((data[name] for name in _TEXT_FIELDS if data.get(name)), data)


def _text(value: Any) -> str:
    """A value as text: passages and pages by their texts, all else as it reads."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        return "\n\n".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        for field in _ITEM_FIELDS:
            if isinstance(value.get(field), str) and value[field].strip():
                title = value.get("title")
                head = f"{title.strip()}\n" if isinstance(title, str) and title.strip() else ""
                return f"{head}{value[field].strip()}"
    return "" if value is None else render_value(to_value(value)).strip()
