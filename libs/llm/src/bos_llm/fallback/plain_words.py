"""Results in words without a model, the same wherever they are made or looked for."""

from __future__ import annotations

from typing import Any

from bos_chassis.values import render_value, to_value

_MAX_SENTENCE_CHARS = 600


def plain_sentence(result: Any, stdout: str) -> str:
    """What a program gave, in words without a model: its result, else what it printed."""
    if result is None:
        printed = stdout.strip()
        if not printed:
            return "The program ran and gave no result."
        return f"The program printed: {_cut(printed)}"
    if isinstance(result, dict) and result:
        pairs = (f"{k} = {render_value(to_value(v))}" for k, v in result.items())
        return f"The result is {_cut('; '.join(pairs))}."
    if isinstance(result, list) and result and isinstance(result[0], dict):
        return f"The result is a table of {len(result)} rows."
    if result == []:
        return "The result is an empty list."
    return f"The result is {_cut(render_value(to_value(result)))}."


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SENTENCE_CHARS else text[:_MAX_SENTENCE_CHARS] + "…"
