"""Tavily's search API: ``POST /search``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bos_web.search.calling import SearchApi
from bos_web.search.provider import Found, SearchRequest, found, result

_DAYS: Mapping[str, int] = {"day": 1, "week": 7, "month": 30, "year": 365}


class Tavily:
    """Adapter of Tavily and of what speaks like it.

    Args:
        api: Its address and key.
        max_content_chars: Text kept of a page that a deep search brings.
    """

    def __init__(self, api: SearchApi, *, max_content_chars: int) -> None:
        self._api = api
        self._max_content_chars = max_content_chars

    async def search(self, request: SearchRequest, *, within_s: float) -> Found:
        """As :meth:`SearchProvider.search`."""
        body = json.dumps(_body(request)).encode()

        def prepared(key: str) -> tuple[str, Mapping[str, str], bytes]:
            return "", {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}, body

        said = await self._api.call(prepared, within_s=within_s)
        listed = said.get("results")
        results = [
            result(
                each.get("title"),
                each.get("url"),
                each.get("content"),
                score=each.get("score"),
                rank=rank,
                published=each.get("published_date"),
                content=each.get("raw_content"),
                max_content_chars=self._max_content_chars,
            )
            for rank, each in enumerate(listed if isinstance(listed, list) else [])
            if isinstance(each, dict)
        ]
        return found(results, request.limit, said.get("answer"))


def _body(request: SearchRequest) -> dict[str, Any]:
    deep, news = request.search_type == "deep", request.search_type == "news"
    body: dict[str, Any] = {
        "query": request.query,
        "topic": "news" if news else "general",
        "search_depth": "advanced" if deep else "basic",
        "include_answer": True,
        "include_raw_content": deep,
        "max_results": request.limit,
    }
    if request.time_range != "any":
        # Days are for news, ranges for everything else.
        if news:
            body["days"] = _DAYS[request.time_range]
        else:
            body["time_range"] = request.time_range
    return body
