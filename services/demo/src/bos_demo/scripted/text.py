"""Scripted replies of the text agent's model; values are captured from the texts that it reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_testkit.scripted_model.replies import fixture

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_demo.questions import TextStep
    from bos_testkit.scripted_model.replies import Fixture

_SLOT = re.compile(r"\{(\w+)(?:@(\d+))?\}")
_LISTS = {"key_points": ("Points", "points"), "extract": ("Items", "items")}


def text_replies(question_id: str, step: TextStep) -> Iterator[Fixture]:
    """Yield the reply of the text agent's model for one step of the question."""
    section = f"### Task\n{step.task}"  # the last one of the prompt
    schema, field = _LISTS.get(step.tool, ("Worded", "text"))
    captures: dict[str, str] = {}

    def slot(match: re.Match[str]) -> str:
        name, row = match[1], int(match[2] or 1)
        captures[f"{name}_{row}"] = _value(name, row)
        return f"${{{name}_{row}}}"

    yield fixture(
        f"{question_id}/{step.id}: {schema}",
        [section],
        schema=schema,
        json={field: list(step.listed) or _SLOT.sub(slot, step.written)},
        capture=captures,
    )


def _value(name: str, row: int) -> str:
    """Pattern of a column of the n-th row that has it, as rows read."""
    return rf'(?s)(?:.*?"?{name}"?:){{{row}}}\s*"?([^",}}]*)'
