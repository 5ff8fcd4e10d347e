"""A search, its results, and what every provider of searches offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bos_web.replies import SearchType, TimeRange

MAX_URL_CHARS = 2_048
MAX_TITLE_CHARS = 300
MAX_SNIPPET_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is searched for."""

    query: str
    search_type: SearchType
    time_range: TimeRange
    limit: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page that was found, as its finder describes it: words of others."""

    title: str
    url: str
    snippet: str
    score: float
    """From 0 to 1, where 1 is the best."""
    published: str = ""
    content: str = ""
    """Text of the page, where the provider read it."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search brought, best first."""

    results: tuple[SearchResult, ...]
    answer: str = ""
    """Direct answer of the provider, where it gives one."""


class SearchProvider(Protocol):
    """An API that searches the web; the adapter of each is in a module of its name."""

    async def search(self, request: SearchRequest, *, within_s: float) -> Found:
        """Search once.

        Raises:
            AgentFailure: ``SearchUnauthorized``, ``SearchRateLimited``, ``SearchQuotaExceeded``,
                ``SearchRefused``, ``SearchReplyInvalid``, ``SearchUnavailable``,
                ``SearchTimedOut``.
        """


def result(
    title: object,
    url: object,
    snippet: object,
    *,
    score: object = None,
    rank: int = 0,
    published: object = "",
    content: object = "",
    max_content_chars: int = 0,
) -> SearchResult | None:
    """A result of what an API said, each part within its limit; None without a web address.

    Args:
        title: Title of the page.
        url: Its address.
        snippet: A few sentences of it.
        score: The provider's score; by the rank where it is none from 0 to 1.
        rank: Place among the results, from 0.
        published: When it was published, in the provider's words.
        content: Its text.
        max_content_chars: How much of the text is kept.
    """
    address = _text(url, MAX_URL_CHARS + 1).strip()
    if len(address) > MAX_URL_CHARS or not address.lower().startswith(("http://", "https://")):
        return None
    if any(each.isspace() or not each.isprintable() for each in address):
        return None
    return SearchResult(
        title=_line(title, MAX_TITLE_CHARS) or address,
        url=address,
        snippet=_text(snippet, MAX_SNIPPET_CHARS).strip(),
        score=_score(score, rank),
        published=_line(published, 40),
        content=_text(content, max_content_chars).strip(),
    )


def found(results: Sequence[SearchResult | None], limit: int, answer: object = "") -> Found:
    """Results without those that are none, each address once, at most ``limit``, best first."""
    unique = {each.url: each for each in reversed(results) if each is not None}
    order = dict.fromkeys(each.url for each in results if each is not None)
    kept = sorted((unique[url] for url in order), key=lambda each: -each.score)[:limit]
    return Found(tuple(kept), _text(answer, MAX_SNIPPET_CHARS).strip())


def _score(score: object, rank: int) -> float:
    # Compared before anything is computed with it: JSON's integers have no limit, and NaN is none.
    if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1:
        return round(float(score), 4)
    return round(1 / (1 + rank / 4), 4)


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    # Halves of surrogate pairs, which JSON may hold and nothing may be made of.
    return value[:limit].encode("utf-8", "replace").decode("utf-8")


def _line(value: object, limit: int) -> str:
    return " ".join(_text(value, limit * 2).split())[:limit]
