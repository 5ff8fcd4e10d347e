"""Citations: one list of sources over all results, with renumbered ``[n]`` markers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bos.agent.v1 import AgentResult
from bos.common.v1 import Source, SourceType
from bos_composer.markers import Markers, checked

_NOT_CITED = (SourceType.SOURCE_TYPE_DATABASE, SourceType.SOURCE_TYPE_API)


@dataclass(frozen=True, slots=True)
class Citations:
    """Sources of all results, and the answers that cite them."""

    sources: tuple[Source, ...]
    """Without duplicates, in the order of the results."""
    answers: tuple[str, ...]
    """The answer of each result, its markers pointing into ``sources``."""
    numbers: tuple[tuple[int, ...], ...] = ()
    """Places of each result's sources in ``sources``, from 1."""
    unknown: int = 0
    """Numbers in those answers that had no source."""

    def markers(self) -> Markers:
        """A check of an answer that cites ``sources``."""
        return Markers(range(1, len(self.sources) + 1), values=not self._any_citable)

    def without_sources(self, text: str) -> str:
        """``text`` of a result that is no answer, so that none of its numbers is a citation."""
        return checked(text, (), values=not self._any_citable)[0]

    @property
    def _any_citable(self) -> bool:
        return any(map(is_citable, self.sources))


def merge(results: Sequence[AgentResult]) -> Citations:
    """Number the sources of all results; the results themselves are not changed.

    The same passage with the same quotation is one source; with another quotation it is another
    one, so that each statement keeps the words that carry it.
    """
    sources: list[Source] = []
    position: dict[tuple[object, ...], int] = {}
    answers = []
    places = []
    dropped = 0
    for result in results:
        numbers = []
        for source in result.sources:
            key = _identity(source)
            if key not in position:
                sources.append(source)
                position[key] = len(sources)
            numbers.append(position[key])
        values = not any(map(is_citable, result.sources))
        answer, unknown = checked(result.answer, numbers, values=values)
        answers.append(answer)
        places.append(tuple(numbers))
        dropped += unknown
    return Citations(tuple(sources), tuple(answers), tuple(places), dropped)


def is_citable(source: Source) -> bool:
    """Whether answers cite the source; tables and APIs are named beside the answer alone."""
    return source.type not in _NOT_CITED


def _identity(source: Source) -> tuple[object, ...]:
    """Identity of a source: the passage, its document and the quotation; not the score."""
    if source.reference:
        return (source.type, source.reference, " ".join(source.excerpt.split()))
    return (
        source.type,
        source.title,
        source.uri,
        source.page,
        source.section,
        source.excerpt,
    )
