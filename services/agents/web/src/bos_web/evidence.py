"""Evidence of an answer: results of searches and pages, numbered from 1. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bos.common.v1 import Source, SourceType
from bos_chassis.links import checked_links
from bos_web.pages.reader import Page
from bos_web.search.provider import SearchResult

_MAX_EXCERPT_CHARS = 500
_READ_SCORE = 0.8
"""Score of a page that was requested by its address, regardless of its content."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A page, by an excerpt or its whole text. Addresses in its text that are no result's are out.

    A model that obeys a page could repeat an address of it, and a reader of the answer follow it.
    """

    url: str
    title: str
    snippet: str = ""
    text: str = ""
    """Of the whole page; empty where it was not read."""
    score: float = _READ_SCORE
    published: str = ""

    @property
    def shown(self) -> str:
        """The words that a model is shown and that an answer may quote."""
        return self.text or self.snippet


def of_results(results: Sequence[SearchResult]) -> list[Evidence]:
    """Results of a search, with the text of pages that their provider read."""
    given = [each.url for each in results]
    return [
        Evidence(
            url=each.url,
            title=checked_links(each.title, given),
            snippet=checked_links(each.snippet, given),
            text=checked_links(each.content, given),
            score=each.score,
            published=each.published,
        )
        for each in results
    ]


def of_pages(pages: Sequence[Page]) -> list[Evidence]:
    """Pages that were asked for by their address."""
    given = [each.url for each in pages]
    return [
        Evidence(
            url=each.url,
            title=checked_links(each.title, given),
            text=checked_links(each.text, given),
        )
        for each in pages
    ]


def with_texts(evidence: Sequence[Evidence], pages: Mapping[str, Page]) -> list[Evidence]:
    """Evidence with the texts of pages that were read, by the address that was asked for."""
    given = [each.url for each in evidence]
    return [
        replace(each, text=checked_links(pages[each.url].text, given))
        if each.url in pages
        else each
        for each in evidence
    ]


def cited_source(each: Evidence, quote: str) -> Source:
    """As a source of an answer, with the words that carry a statement."""
    return Source(
        type=SourceType.SOURCE_TYPE_WEB,
        title=each.title,
        uri=each.url,
        excerpt=quote or shortened(each.shown),
        relevance=each.score,
        reference=each.url,
    )


def results_data(evidence: Iterable[Evidence]) -> list[dict[str, Any]]:
    """Results as the agent's data: ``title, url, snippet, score``."""
    return [
        {
            "title": each.title,
            "url": each.url,
            "snippet": each.snippet,
            "score": each.score,
            **({"published": each.published} if each.published else {}),
        }
        for each in evidence
    ]


def pages_data(evidence: Iterable[Evidence]) -> list[dict[str, Any]]:
    """Pages that were read as the agent's data: ``url, title, text``."""
    return [
        {"url": each.url, "title": each.title, "text": each.text} for each in evidence if each.text
    ]


def sources_data(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Sources as the agent's data: ``type, source, url, excerpt, relevance_score``."""
    return [
        {
            "type": "web",
            "source": each.title,
            "url": each.uri,
            "excerpt": each.excerpt,
            "relevance_score": each.relevance,
        }
        for each in sources
    ]


def confidence(sources: Sequence[Source]) -> float:
    """Average score of the sources, 0 to 1; 0 where there are none."""
    return min(1.0, sum(each.relevance for each in sources) / len(sources)) if sources else 0.0


def shortened(text: str) -> str:
    """The beginning of a text as an excerpt of one line."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_EXCERPT_CHARS else line[: _MAX_EXCERPT_CHARS - 1] + "…"
