"""Passages that a search brought: which are relevant, in which order, how sure. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from bos.common.v1 import Source, SourceType
from bos.documents.v1 import Passage
from bos_rag.entities import codes, exact_terms, holds

PREVIEW_CHARS = 600
_MAX_EXCERPT_CHARS = 500
_COVERAGE_WEIGHT = 0.2


def relevant(
    passages: Sequence[Passage],
    question: str,
    coverage: float,
    min_relevance: float,
    *,
    judged: bool = False,
) -> bool:
    """Whether a search found anything about the question.

    A passage holds an exact term of the question, such as the number of an invoice; or
    :func:`relevance` reaches ``min_relevance``, and no code of the question is missing in all
    passages.

    Args:
        passages: What was found.
        question: With its exact terms.
        coverage: Share of its words that were found, 0 to 1.
        min_relevance: Bound of :func:`relevance`.
        judged: A model reads the passages next, so that a missing code alone decides nothing: the
            documents may spell it otherwise.
    """
    if hold_exact_term(passages, question):
        return True
    near = relevance(passages, coverage) >= min_relevance
    return near and (judged or not codes(question))


def hold_exact_term(passages: Sequence[Passage], question: str) -> bool:
    """Whether a passage holds an exact term of the question."""
    terms = exact_terms(question)
    return any(_terms_in(found, terms) for found in passages)


def missing_codes(passages: Sequence[Passage], question: str) -> tuple[str, ...]:
    """Codes of the question that no passage holds, lower case."""
    return tuple(
        code for code in codes(question) if not any(_terms_in(each, [code]) for each in passages)
    )


def relevance(passages: Sequence[Passage], coverage: float) -> float:
    """Relevance of passages to a question: the best cosine similarity, and a fifth of coverage.

    The weight was chosen on half of the judged questions of ``make bench NAME=retrieval``. Where no
    passage has a similarity, since its vectors are of a former model, coverage stands alone.
    """
    scores = _similarities(passages)
    return max(scores) + _COVERAGE_WEIGHT * coverage if scores else coverage


def by_rule(passages: Sequence[Passage], question: str) -> list[Passage]:
    """The order without a model: most exact terms of the question first, then as found."""
    terms = exact_terms(question)
    return sorted(passages, key=lambda found: -_terms_in(found, terms))


def by_ranking(passages: Sequence[Passage], ranked: Sequence[int]) -> list[Passage]:
    """Passages in the order of a model's ranking, numbers from 1; unranked ones are dropped.

    Numbers that name no passage are ignored, repeated ones count once.
    """
    valid = dict.fromkeys(number for number in ranked if 1 <= number <= len(passages))
    return [passages[number - 1] for number in valid]


def merged(first: Sequence[Passage], second: Sequence[Passage], limit: int) -> list[Passage]:
    """Both lists one after the other, each chunk once, at most ``limit``."""
    found = {passage.chunk.chunk_id: passage for passage in reversed([*first, *second])}
    order = dict.fromkeys(passage.chunk.chunk_id for passage in [*first, *second])
    return [found[chunk_id] for chunk_id in order][:limit]


def confidence(passages: Sequence[Passage]) -> float:
    """Average cosine similarity of the passages, 0 to 1; 0 where none has one."""
    scores = _similarities(passages)
    return min(1.0, max(0.0, sum(scores) / len(scores))) if scores else 0.0


def as_source(passage: Passage, quote: str) -> Source:
    """The passage as a source of an answer, with the words that carry a statement."""
    chunk = passage.chunk
    return Source(
        type=SourceType.SOURCE_TYPE_DOCUMENT,
        title=chunk.document_name,
        page=chunk.first_page,
        section=" > ".join(chunk.section_path),
        excerpt=quote or _shortened(chunk.text),
        relevance=confidence([passage]),
        reference=chunk.chunk_id,
    )


def as_data(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Passages as the agent's data: ``chunk_id, score, text, metadata``."""
    return [
        {
            "chunk_id": found.chunk.chunk_id,
            "score": found.score,
            "text": found.chunk.text,
            "metadata": {
                "filename": found.chunk.document_name,
                "page": found.chunk.first_page,
                "section_title": " > ".join(found.chunk.section_path),
                "doc_type": found.chunk.document_type,
                "date": found.chunk.document_date,
                "topic": list(found.chunk.topics),
                "document_id": found.chunk.document_id,
            },
        }
        for found in passages
    ]


def sources_data(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """Unique places of the passages: ``type, source, page, section``."""
    places = dict.fromkeys(
        (found.chunk.document_name, found.chunk.first_page, " > ".join(found.chunk.section_path))
        for found in passages
    )
    return [
        {"type": "document", "source": name, "page": page, "section": section}
        for name, page, section in places
    ]


def _similarities(passages: Sequence[Passage]) -> list[float]:
    return [found.dense_score for found in passages if found.HasField("dense_score")]


def _terms_in(passage: Passage, terms: Sequence[str]) -> int:
    chunk = passage.chunk
    text = "\n".join((chunk.document_name, *chunk.section_path, chunk.text))
    text = unicodedata.normalize("NFKC", text).lower()
    return sum(holds(text, term) for term in terms)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_EXCERPT_CHARS else line[: _MAX_EXCERPT_CHARS - 1] + "…"
