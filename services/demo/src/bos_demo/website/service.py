"""The demo's public web on loopback: a search API of Tavily's shape, and the site it knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from ipaddress import IPv4Network
from typing import Any

from aiohttp import web
from pydantic import SecretStr

from bos_demo.website.pages import Gazette, Page, load_pages
from bos_demo.website.ranking import Ranking

_HOST = "127.0.0.1"
_KEY = "demo-search-key"
"""Of an API that nobody but this machine reaches."""
_SLOW_S = 120.0
_ROBOTS = "User-agent: *\nDisallow: /members/\n"
_MOST = 20
_RANGES: Mapping[str, int] = {"day": 1, "week": 7, "month": 31, "year": 366}


@dataclass(frozen=True)
class Website:
    """Addresses of the running search API and site."""

    api: str
    """Base URL of the search API."""
    site: str
    """Base URL of the site."""

    @property
    def search_url(self) -> str:
        """Where the search API takes searches."""
        return f"{self.api}/search"

    @property
    def search_key(self) -> SecretStr:
        """Key of the search API."""
        return SecretStr(_KEY)

    @property
    def networks(self) -> tuple[IPv4Network, ...]:
        """Networks of both."""
        return (IPv4Network(f"{_HOST}/32"),)


@asynccontextmanager
async def serve_website(today: date) -> AsyncIterator[Website]:
    """Serve both until the block is left.

    Args:
        today: Which day "the last week" ends on.
    """
    pages = load_pages()
    site = web.Application()
    async with _serving(_site(site, pages)) as site_url:
        api = web.Application(client_max_size=64 * 1024)
        api[_SEARCH] = _Search(pages, site_url, today)
        api.router.add_post("/search", _searched)
        async with _serving(api) as api_url:
            yield Website(api_url, site_url)


class _Search:
    """What the API knows: all pages but those that robots.txt keeps from it."""

    def __init__(self, pages: tuple[Page, ...], site_url: str, today: date) -> None:
        known = [page for page in pages if not page.path.startswith("/members/")]
        self._all = Ranking(known)
        self._news = Ranking([page for page in known if page.topic == "news"])
        self._site_url = site_url
        self._today = today

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a search."""
        news = asked.get("topic") == "news"
        days = asked.get("days") if news else _RANGES.get(str(asked.get("time_range")))
        query, limit = str(asked["query"]), asked.get("max_results")
        most = limit if isinstance(limit, int) and 0 < limit <= _MOST else 5
        ranking = self._news if news else self._all
        hits = [each for each in ranking.search(query) if self._is_recent(each.page, days)]
        return {
            "query": query,
            "answer": None,
            "images": [],
            "results": [
                {
                    "title": each.page.title,
                    "url": self._site_url + each.page.path,
                    "content": each.snippet,
                    "score": each.score,
                    "raw_content": None,
                    **({"published_date": _published(each.page)} if news else {}),
                }
                for each in hits[:most]
            ],
            "response_time": 0.01,
        }

    def _is_recent(self, page: Page, days: object) -> bool:
        if not isinstance(days, int):
            return True
        return page.date >= self._today - timedelta(days=days)


_SEARCH = web.AppKey("search", _Search)


async def _searched(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bearer {_KEY}":
        return _refused(401, "Unauthorized: missing or invalid API key.")
    try:
        asked = await request.json()
    except ValueError:
        asked = None
    query = asked.get("query") if isinstance(asked, dict) else None
    if not isinstance(query, str) or not query.strip() or len(query) > 400:
        return _refused(400, "Query is missing or longer than 400 characters.")
    return web.json_response(request.app[_SEARCH].answer(asked))


def _refused(status: int, why: str) -> web.Response:
    return web.json_response({"detail": {"error": why}}, status=status)


def _site(site: web.Application, pages: tuple[Page, ...]) -> web.Application:
    gazette = Gazette(pages)

    async def front(_: web.Request) -> web.Response:
        return web.Response(text=gazette.front(), content_type="text/html")

    async def robots(_: web.Request) -> web.Response:
        return web.Response(text=_ROBOTS)

    site.router.add_get("/", front)
    site.router.add_get("/robots.txt", robots)
    for page in pages:
        site.router.add_get(page.path, _shown(gazette, page))
    return site


def _shown(gazette: Gazette, page: Page) -> Any:
    async def shown(_: web.Request) -> web.Response:
        if page.kind == "redirect":
            return web.Response(status=301, headers={"Location": page.to})
        if page.kind == "slow":
            # Until who asks has left, which cancels this.
            await asyncio.sleep(_SLOW_S)
        return web.Response(text=gazette.article(page), content_type="text/html")

    return shown


def _published(page: Page) -> str:
    return format_datetime(datetime(*page.date.timetuple()[:3], tzinfo=UTC), usegmt=True)


@asynccontextmanager
async def _serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        listening = web.TCPSite(runner, _HOST, 0)
        await listening.start()
        yield f"http://{_HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
