"""SearXNG's search API: ``GET /search?format=json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from bos_web.search.calling import SearchApi
from bos_web.search.provider import Found, SearchRequest, found, result


class SearXng:
    """Adapter of SearXNG, whose settings must allow the format ``json``.

    Args:
        api: Its address; a key is sent as a bearer token, for a proxy in front of it.
    """

    def __init__(self, api: SearchApi) -> None:
        self._api = api

    async def search(self, request: SearchRequest, *, within_s: float) -> Found:
        """As :meth:`SearchProvider.search`."""
        fields = {
            "q": request.query,
            "format": "json",
            "categories": "news" if request.search_type == "news" else "general",
        }
        if request.time_range != "any":
            fields["time_range"] = request.time_range

        def prepared(key: str) -> tuple[str, Mapping[str, str], None]:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            return "?" + urlencode(fields), headers, None

        said = await self._api.call(prepared, within_s=within_s)
        listed = said.get("results")
        entries = [
            each for each in (listed if isinstance(listed, list) else []) if isinstance(each, dict)
        ]
        best = max((_score(each) for each in entries), default=0.0)
        results = [
            result(
                each.get("title"),
                each.get("url"),
                each.get("content"),
                # Its scores have no upper bound; they are relative to the best.
                score=_score(each) / best if best > 0 else None,
                rank=rank,
                published=each.get("publishedDate"),
            )
            for rank, each in enumerate(entries)
        ]
        return found(results, request.limit, _answer(said.get("answers")))


def _score(entry: Mapping[str, Any]) -> float:
    score = entry.get("score")
    usable = isinstance(score, int | float) and not isinstance(score, bool) and 0 < score < 1e9
    return float(score) if usable and score is not None else 0.0


def _answer(answers: Any) -> str:
    """The first answer: text, or in newer versions a map that holds it."""
    first = answers[0] if isinstance(answers, list) and answers else ""
    if isinstance(first, dict):
        first = first.get("answer")
    return first if isinstance(first, str) else ""
