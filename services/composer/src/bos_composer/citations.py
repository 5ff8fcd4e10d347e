"""Citations: one list of sources over all results, with renumbered ``[n]`` markers. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Source

# [1] and [1, 2], but not the text of a link, [1](https://...).
_MARKER = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\](?!\()")
_INDEXED = re.compile(r"[\w)\]]")


@dataclass(frozen=True, slots=True)
class Citations:
    """Sources of all results, and the answers that cite them."""

    sources: tuple[Source, ...]
    """Without duplicates, in the order of the results."""
    answers: tuple[str, ...]
    """The answer of each result, its markers pointing into ``sources``."""


def merge(results: Sequence[AgentResult]) -> Citations:
    """Number the sources of all results; the results themselves are not changed."""
    sources: list[Source] = []
    position: dict[tuple[object, ...], int] = {}
    answers = []
    for result in results:
        numbers = []
        for source in result.sources:
            key = _identity(source)
            if key not in position:
                sources.append(source)
                position[key] = len(sources)
            numbers.append(position[key])
        answers.append(renumber(result.answer, numbers))
    return Citations(tuple(sources), tuple(answers))


def renumber(text: str, numbers: Sequence[int]) -> str:
    """Replace each marker ``[n]`` in ``text`` by ``[numbers[n-1]]``.

    A marker without a source would cite another source after renumbering, so it becomes ``(n)``;
    indexes such as ``row[7]`` are not changed.
    """

    def replace(found: re.Match[str]) -> str:
        cited = [int(number) for number in found[1].split(",")]
        if all(1 <= number <= len(numbers) for number in cited):
            return f"[{', '.join(dict.fromkeys(str(numbers[n - 1]) for n in cited))}]"
        before = text[found.start() - 1 : found.start()]
        return found[0] if _INDEXED.fullmatch(before) else f"({found[1]})"

    return _MARKER.sub(replace, text)


def _identity(source: Source) -> tuple[object, ...]:
    """Identity of a source: the passage and its document, regardless of the score."""
    if source.reference:
        return (source.type, source.reference)
    return (
        source.type,
        source.title,
        source.uri,
        source.page,
        source.section,
        source.excerpt,
    )
