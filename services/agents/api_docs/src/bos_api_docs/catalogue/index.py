"""Full-text index over operations and snippets of all APIs; immutable, shared by steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_agentkit.ranking import Ranking, terms, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_agentkit.ranking import Weighted
    from bos_api_docs.catalogue.model import ApiCatalogue, Operation, Snippet


@dataclass(frozen=True, slots=True)
class Found:
    """The best operations and snippets for a question, best first."""

    operations: tuple[Operation, ...]
    snippets: tuple[Snippet, ...]


class CatalogueIndex:
    """Ranks operations by method, path and description, and snippets by their text.

    Args:
        catalogues: All APIs.
    """

    def __init__(self, catalogues: Sequence[ApiCatalogue]) -> None:
        self.catalogues = tuple(catalogues)
        self.operations = tuple(each for api in catalogues for each in api.operations)
        self.snippets = tuple(each for api in catalogues for each in api.snippets)
        # A word that every operation has says nothing, so one API's own name is left out.
        titles = {
            api.name: words(f"{api.name} {api.title}") if len(self.catalogues) > 1 else []
            for api in self.catalogues
        }
        self._operations = Ranking(
            [_operation_texts(each, titles[each.api]) for each in self.operations]
        )
        self._snippets = Ranking([_snippet_texts(each) for each in self.snippets])

    def search(self, query: str, *, operations: int, snippets: int) -> Found:
        """The ``operations`` and ``snippets`` that fit ``query`` best.

        Where no word fits, the first operations are returned: the model may know better.
        """
        asked = terms(query)
        best = _best(self._operations.scores(asked), operations)
        ranked = [self.operations[place] for place in best] or list(self.operations[:operations])
        texts = [self.snippets[place] for place in _best(self._snippets.scores(asked), snippets)]
        return Found(tuple(ranked), tuple(texts))


def _best(scores: dict[int, float], count: int) -> list[int]:
    return sorted(scores, key=lambda place: (-scores[place], place))[:count]


def _operation_texts(operation: Operation, title: list[str]) -> list[Weighted]:
    parameters = [text for each in operation.parameters for text in words(each.name)]
    described = [text for each in operation.parameters for text in words(each.description)]
    return [
        (1.0, words(operation.method)),
        (3.0, words(operation.path)),
        (3.0, words(operation.summary)),
        (2.0, words(operation.operation_id)),
        (2.0, words(operation.description)),
        (1.5, [text for tag in operation.tags for text in words(tag)]),
        (0.5, parameters),
        (0.25, described),
        (0.5, [text for each in operation.parameters for text in words(each.form)]),
        (0.25, words(operation.response)),
        (0.25, words(operation.body)),
        (0.5, title),
    ]


def _snippet_texts(snippet: Snippet) -> list[Weighted]:
    return [(3.0, words(snippet.title)), (1.0, words(snippet.text))]
