"""Google's Custom Search JSON API: ``GET customsearch/v1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from bos_web.search.calling import SearchApi
from bos_web.search.provider import Found, SearchRequest, found, result

_RESTRICT: Mapping[str, str] = {"day": "d1", "week": "w1", "month": "m1", "year": "y1"}
_MOST = 10
"""Results that one request may ask for."""


class Google:
    """Adapter of Google. It knows neither news nor whole pages: news are the newest results first.

    Args:
        api: Its address and key.
        engine_id: Identifier of the search engine (``cx``).
    """

    def __init__(self, api: SearchApi, *, engine_id: str) -> None:
        self._api = api
        self._engine_id = engine_id

    async def search(self, request: SearchRequest, *, within_s: float) -> Found:
        """As :meth:`SearchProvider.search`."""
        fields: dict[str, Any] = {
            "cx": self._engine_id,
            "q": request.query,
            "num": min(request.limit, _MOST),
        }
        if request.time_range != "any":
            fields["dateRestrict"] = _RESTRICT[request.time_range]
        if request.search_type == "news":
            fields.setdefault("dateRestrict", _RESTRICT["month"])
            fields["sort"] = "date"

        def prepared(key: str) -> tuple[str, Mapping[str, str], None]:
            return "?" + urlencode({"key": key, **fields}), {}, None

        said = await self._api.call(prepared, within_s=within_s)
        items = said.get("items")  # absent where nothing is found
        results = [
            result(each.get("title"), each.get("link"), each.get("snippet"), rank=rank)
            for rank, each in enumerate(items if isinstance(items, list) else [])
            if isinstance(each, dict)
        ]
        return found(results, request.limit)
