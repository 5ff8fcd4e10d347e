"""The configured search provider, opened."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bos_chassis.telemetry import Telemetry
from bos_web.search.calling import SearchApi
from bos_web.search.google import Google
from bos_web.search.keys import SearchKey
from bos_web.search.provider import SearchProvider
from bos_web.search.searxng import SearXng
from bos_web.search.tavily import Tavily
from bos_web.settings import WebSettings


@asynccontextmanager
async def open_provider(
    settings: WebSettings, telemetry: Telemetry
) -> AsyncIterator[SearchProvider | None]:
    """The provider that the settings name, until the block is left; None where none is named.

    Raises:
        ConfigurationError: The key file is not usable.
    """
    if settings.search_provider == "none":
        yield None
        return
    api = SearchApi(settings, telemetry, SearchKey(settings, telemetry))
    async with api.http:
        match settings.search_provider:
            case "tavily":
                yield Tavily(api, max_content_chars=settings.max_page_chars)
            case "google":
                yield Google(api, engine_id=settings.search_engine_id)
            case _:
                yield SearXng(api)
