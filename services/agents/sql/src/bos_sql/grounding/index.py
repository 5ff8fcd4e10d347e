"""Metadata index of one database: documents, ranking, and schema excerpts for questions."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bos_agentkit.ranking import Ranking, terms, whole, words
from bos_sql.grounding.joins import JoinGraph
from bos_sql.grounding.schema_excerpt import Citation, GroundingPack
from bos_sql.semantics.naming import MetricNames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from bos_agentkit.ranking import Weighted
    from bos_sql.grounding.catalog import Catalog, Field, Join, Metric, Table

DocKind = Literal["table", "field", "relationship", "metric"]

_MAX_SNIPPET_CHARS = 200
_MAX_DETAIL_CITATIONS = 8
_MAX_METRICS = 20
# Two chosen tables are joined through at most three others, two suggested ones through one.
_MAX_JOINS = 4
_MAX_SUGGESTED_JOINS = 2
# A table whose score is below this share of the best one's is described briefly: it may be needed
# for a join, but hardly for the answer.
_BRIEF_BELOW = 0.25


@dataclass(frozen=True, slots=True)
class MetadataDoc:
    """A document of the index."""

    doc_id: str
    kind: DocKind
    tables: tuple[str, ...]
    """Tables that it describes."""
    text: str


@dataclass(frozen=True, slots=True)
class MetadataHit:
    """A search hit; higher scores are better."""

    doc: MetadataDoc
    score: float


@dataclass(frozen=True, slots=True)
class MetadataFilters:
    """Filters of a search; empty means all documents."""

    kinds: frozenset[DocKind] = frozenset()
    tables: frozenset[str] = frozenset()
    """Only documents whose tables are all among these."""

    def accept(self, doc: MetadataDoc) -> bool:
        """Whether ``doc`` passes the filters."""
        if self.kinds and doc.kind not in self.kinds:
            return False
        return not self.tables or self.tables.issuperset(doc.tables)


class MetadataIndex:
    """Full-text index over the metadata of one database; immutable, shared by steps.

    Args:
        catalog: Catalogue of the database with curated metadata.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._tables = {table.name: table for table in catalog.tables}
        self._graph = JoinGraph(catalog.joins)
        self._references = _references(catalog.joins)
        self._names = frozenset(name.casefold() for name in _names(catalog))
        self.metric_names = MetricNames(catalog)
        documents = list(_documents(catalog))
        self._docs = [doc for doc, _ in documents]
        self._ranking = Ranking([texts for _, texts in documents])

    def search_metadata(
        self, query: str, top_k: int = 10, filters: MetadataFilters | None = None
    ) -> list[MetadataHit]:
        """Search the documents; returns the best hits, best first.

        Args:
            query: A question or task.
            top_k: Most hits.
            filters: Filters of documents; None: all.
        """
        scores = self._ranking.scores(terms(query))
        hits = [
            MetadataHit(self._docs[place], score)
            for place, score in scores.items()
            if filters is None or filters.accept(self._docs[place])
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.doc.doc_id))
        return hits[:top_k]

    def ranked_tables(self, query: str) -> tuple[str, ...]:
        """Tables that have a word in common with ``query``, the most relevant first."""
        only = MetadataFilters(kinds=frozenset({"table"}))
        hits = self.search_metadata(query, len(self._tables), only)
        return tuple(hit.doc.tables[0] for hit in hits)

    def suggested_tables(self, query: str, limit: int) -> tuple[str, ...]:
        """Most relevant tables, and tables that join them; at most ``limit``."""
        ranked = self.ranked_tables(query)
        chosen: dict[str, None] = {}
        for table in ranked:
            path = self._graph.path(chosen, table, max_joins=_MAX_SUGGESTED_JOINS, preferred=ranked)
            added = dict.fromkeys([table, *(path.tables if path else ())])
            if len(chosen | added) > limit:
                added = {table: None}
            chosen |= added
            if len(chosen) >= limit:
                break
        return tuple(chosen)

    def with_joining_tables(self, tables: Sequence[str]) -> tuple[str, ...]:
        """``tables``, and the tables through which they are joined."""
        paths = self._graph.connect(tables, max_joins=_MAX_JOINS)
        return tuple(dict.fromkeys([*tables, *(table for p in paths for table in p.tables)]))

    def brief_tables(self, tables: Sequence[str], query: str) -> frozenset[str]:
        """Tables of low relevance to ``query``; none if none is relevant."""
        only = MetadataFilters(frozenset({"table"}), frozenset(tables))
        hits = self.search_metadata(query, len(tables), only)
        if not hits:
            return frozenset()
        least = _BRIEF_BELOW * hits[0].score
        return frozenset(tables) - {hit.doc.tables[0] for hit in hits if hit.score >= least}

    def pack(
        self,
        tables: Sequence[str],
        query: str,
        *,
        briefly: Collection[str] = (),
        named: Sequence[Metric] = (),
    ) -> GroundingPack:
        """Schema excerpt of ``tables``, with citations for ``query``.

        Args:
            tables: Names of tables of this database; their order is kept.
            query: The question or task.
            briefly: Tables without comments and values.
            named: Metrics that the question names; they come first.
        """
        shown = [self._tables[name] for name in tables]
        inside = frozenset(tables)
        in_full = inside.difference(briefly)
        asked = frozenset(words(query))
        joins = [each for each in self.catalog.joins if {each.table, each.other} <= inside]
        metrics = [
            each
            for each in self.catalog.metrics
            if each not in named
            and inside.issuperset(each.tables)
            and in_full.intersection(each.tables)
        ]
        found = self.search_metadata(
            query,
            _MAX_DETAIL_CITATIONS,
            MetadataFilters(frozenset({"field", "relationship", "metric"}), inside),
        )
        return GroundingPack(
            table_docs=tuple(
                table.shown(
                    self._references.get(table.name, {}),
                    asked=asked,
                    briefly=table.name in briefly,
                )
                for table in shown
            ),
            field_docs=tuple(
                f"{table.name}.{field.text}" for table in shown for field in table.fields
            ),
            relationship_docs=tuple(dict.fromkeys(join.text for join in joins)),
            join_docs=tuple(
                dict.fromkeys(
                    join.text
                    for join in joins
                    if not self._is_in_table_text(join)
                    or (join.note and {join.table, join.other} <= in_full)
                )
            ),
            metric_docs=tuple(metric.text for metric in [*named, *metrics][:_MAX_METRICS]),
            citations=(
                *(self._citation(table.name, table.headline) for table in shown),
                *(Citation(hit.doc.doc_id, _snippet(hit.doc.text)) for hit in found),
            ),
            suggested_tables=tuple(tables),
            suggested_join_paths=tuple(
                path.text for path in self._graph.connect(tables, max_joins=_MAX_JOINS)
            ),
        )

    def __contains__(self, table: str) -> bool:
        """Whether the index has the table, case-sensitive."""
        return table in self._tables

    def names(self, name: str) -> bool:
        """Whether a table, field, metric or value has this name, case-insensitive."""
        return name.casefold() in self._names

    def _is_in_table_text(self, join: Join) -> bool:
        """Whether the text of its table shows this join, as the reference of a column."""
        if len(join.columns) != 1:
            return False
        shown = self._references[join.table].get(join.columns[0])
        return shown == f"{join.other}.{join.other_columns[0]}"

    def _citation(self, name: str, text: str) -> Citation:
        return Citation(f"{self.catalog.database}.{name}", _snippet(text))


def _references(joins: Iterable[Join]) -> dict[str, dict[str, str]]:
    """Referenced columns by table and column; the first one of each column."""
    references: dict[str, dict[str, str]] = defaultdict(dict)
    for join in joins:
        if len(join.columns) == 1:
            target = f"{join.other}.{join.other_columns[0]}"
            references[join.table].setdefault(join.columns[0], target)
    return references


def _names(catalog: Catalog) -> Iterator[str]:
    yield from (metric.name for metric in catalog.metrics)
    for table in catalog.tables:
        yield table.name
        for field in table.fields:
            yield field.name
            yield f"{table.name}.{field.name}"
            yield from field.values


def _documents(catalog: Catalog) -> Iterator[tuple[MetadataDoc, list[Weighted]]]:
    """Documents with their weighted texts; names and synonyms weigh most, values least."""
    metrics = defaultdict(list)
    for metric in catalog.metrics:
        for name in metric.tables:
            metrics[name].append(metric)
        yield (
            MetadataDoc(
                f"{catalog.database}.metric:{metric.name}", "metric", metric.tables, metric.text
            ),
            _metric_texts(metric),
        )
    for table in catalog.tables:
        yield (
            MetadataDoc(f"{catalog.database}.{table.name}", "table", (table.name,), table.headline),
            _table_texts(table, metrics[table.name]),
        )
        for field in table.fields:
            name = f"{table.name}.{field.name}"
            yield (
                MetadataDoc(
                    f"{catalog.database}.{name}",
                    "field",
                    (table.name,),
                    f"{table.name}.{field.text}",
                ),
                _field_texts(table, field),
            )
    for join in catalog.joins:
        tables = tuple(dict.fromkeys([join.table, join.other]))
        yield (
            MetadataDoc(f"{catalog.database}.{join.doc_id}", "relationship", tables, join.text),
            _join_texts(join),
        )


def _table_texts(table: Table, metrics: Iterable[Metric]) -> list[Weighted]:
    texts: list[Weighted] = [
        (4.0, _name(table.name, table.synonyms)),
        (2.0, words(table.comment)),
        (1.0, _all_words(table.questions)),
    ]
    for field in table.fields:
        texts += [
            (1.0, words(field.name)),
            (1.5, _all_words(field.synonyms)),
            (0.5, words(field.comment)),
            (0.5, _all_words(field.values)),
        ]
    for metric in metrics:
        texts += [
            (2.0, _name(metric.name, metric.synonyms)),
            (0.5, _all_words(metric.questions)),
        ]
    return texts


def _field_texts(table: Table, field: Field) -> list[Weighted]:
    return [
        (3.0, _name(field.name, field.synonyms)),
        (2.0, words(field.comment)),
        (1.0, _all_words(field.values)),
        (1.0, words(table.name)),
    ]


def _join_texts(join: Join) -> list[Weighted]:
    return [
        (2.0, words(f"{join.table} {join.other}")),
        (1.0, _all_words([*join.columns, *join.other_columns])),
        (2.0, words(join.note)),
    ]


def _metric_texts(metric: Metric) -> list[Weighted]:
    return [
        (4.0, _name(metric.name, metric.synonyms)),
        (2.0, words(metric.description)),
        (1.0, _all_words(metric.questions)),
        (1.0, _all_words(metric.tables)),
    ]


def _name(name: str, synonyms: Iterable[str]) -> list[str]:
    """Terms of a name and its synonyms: every word, and each name as a whole."""
    called = [name, *synonyms]
    return [*_all_words(called), *map(whole, called)]


def _all_words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in words(text)]


def _snippet(text: str) -> str:
    return text if len(text) <= _MAX_SNIPPET_CHARS else f"{text[: _MAX_SNIPPET_CHARS - 1]}…"
