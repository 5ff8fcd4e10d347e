"""Metrics that a question names, by whole words; deterministic, without a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bos_agentkit.ranking import words
from bos_sql.grounding.catalog import Catalog, Metric

Phrase = tuple[str, ...]
"""Stemmed words of a name, without stop words."""

_MAX_PHRASE_WORDS = 8


class MetricNames:
    """Names of the metrics of a catalogue, found in questions.

    The longest name wins: in "sales targets", the table of that name leaves nothing to a metric
    called "sales". Between names of equal length the metric wins.

    Args:
        catalog: Catalogue with its metrics.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._phrases: dict[Phrase, Metric | None] = {}
        if not catalog.metrics:
            return
        for name in _other_names(catalog):
            self._phrases[phrase(name)] = None
        for metric in catalog.metrics:
            for name in (metric.name, *metric.synonyms):
                self._phrases[phrase(name)] = metric
        self._phrases.pop((), None)
        self._longest = min(_MAX_PHRASE_WORDS, max(map(len, self._phrases)))

    def named(self, text: str) -> tuple[Metric, ...]:
        """Metrics that ``text`` names, in the order of their first mention."""
        if not self._phrases:
            return ()
        said = words(text)
        found: dict[str, Metric] = {}
        place = 0
        while place < len(said):
            size, metric = self._at(said, place)
            if metric is not None:
                found.setdefault(metric.name, metric)
            place += size
        return tuple(found.values())

    def _at(self, said: list[str], place: int) -> tuple[int, Metric | None]:
        """Length of the longest name that starts here, and its metric, if it is one's."""
        for size in range(min(self._longest, len(said) - place), 0, -1):
            key = tuple(said[place : place + size])
            if key in self._phrases:
                return size, self._phrases[key]
        return 1, None


def phrase(name: str) -> Phrase:
    """``name`` as it is compared: case, plurals, underscores and stop words do not matter."""
    return tuple(words(name))


def contested_name(metrics: Iterable[Metric]) -> tuple[Metric, str] | None:
    """A metric and one of its names that an earlier metric has too; None if there is none."""
    owners: dict[Phrase, str] = {}
    for metric in metrics:
        for name in (metric.name, *metric.synonyms):
            if owners.setdefault(phrase(name), metric.name) != metric.name:
                return metric, name
    return None


def _other_names(catalog: Catalog) -> Iterator[str]:
    for table in catalog.tables:
        yield table.name
        yield from table.synonyms
        for field in table.fields:
            yield field.name
            yield from field.synonyms
            yield from field.values
