"""Bounded texts: titles, messages, and summaries by rule. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MAX_TITLE_CHARS = 80
MAX_STORED_CHARS = 32_768
MAX_SUMMARY_CHARS = 2_000
_MAX_TURN_CHARS = 300


def cut(text: str, limit: int) -> str:
    """Truncate ``text`` to ``limit`` characters, with an ellipsis as the last one."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def on_one_line(text: str, limit: int) -> str:
    """Truncated ``text`` without line breaks and control characters."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return cut(" ".join(shown.split()), limit)


def storable(text: str) -> str:
    """``text`` without U+0000, which PostgreSQL cannot store."""
    return cut(text.replace("\0", ""), MAX_STORED_CHARS)


def title_of(question: str) -> str:
    """Title of a conversation: the first words of its first question."""
    line = on_one_line(question, MAX_STORED_CHARS)
    if len(line) <= MAX_TITLE_CHARS:
        return line or "…"
    words, _, rest = line[:MAX_TITLE_CHARS].rpartition(" ")
    return (words or rest[: MAX_TITLE_CHARS - 1]) + "…"


def summary_by_rule(former: str, turns: Sequence[tuple[str, str]]) -> str:
    """Summary by rule: the former summary, then one line per turn; the oldest text is cut off.

    Args:
        former: The former summary; may be empty.
        turns: Questions with their answers.
    """
    lines = former.splitlines()
    half = _MAX_TURN_CHARS // 2
    lines += [f"Asked: {on_one_line(q, half)} Answered: {on_one_line(a, half)}" for q, a in turns]
    while len(lines) > 1 and sum(len(line) + 1 for line in lines) > MAX_SUMMARY_CHARS:
        del lines[0]
    return cut("\n".join(lines), MAX_SUMMARY_CHARS)
