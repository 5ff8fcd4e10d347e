"""Reads pages: policy, robots.txt, turns of the host, media type, charset, readable text."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType, BosError
from bos_http import HttpClient, HttpRefused, HttpTimedOut
from bos_web.pages.browser.renderer import Renderer
from bos_web.pages.browser.visit import Visit, VisitLimits
from bos_web.pages.charset import decoded
from bos_web.pages.extraction import Extraction
from bos_web.pages.hosts import HostTurns, TooSlow
from bos_web.pages.robots import RobotsCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpResponse, Resolver
    from bos_web.settings import WebSettings

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"text/plain", "text/markdown", "text/csv", "application/json"})
_ACCEPT = "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.1"
_NO_BROWSER = (
    "The page holds no text that can be read; it may need a browser, which an operator has to set "
    "by BOS_WEB_BROWSER."
)
_BLANK_LINES = re.compile(r"\n\s*\n+")


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read: words of others."""

    url: str
    """Where it was in the end, after redirects."""
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A page without a browser."""

    page: Page
    """Its text may be empty where it needs a browser."""
    response: HttpResponse
    needs_browser: bool


class Reader:
    """Reads pages for all steps of the process.

    Args:
        settings: Limits.
        http: Client with the policy of pages.
        extraction: Finds the text.
        robots: Rules of hosts.
        renderer: Shows pages that only scripts fill; None: they are not read.
    """

    def __init__(
        self,
        settings: WebSettings,
        http: HttpClient,
        extraction: Extraction,
        robots: RobotsCache,
        renderer: Renderer | None = None,
    ) -> None:
        self._settings = settings
        self._http = http
        self._extraction = extraction
        self._robots = robots
        self._renderer = renderer
        self._turns = HostTurns(interval_s=settings.host_interval_s, at_once=settings.host_requests)
        self._places = asyncio.Semaphore(settings.page_requests)

    async def read(self, url: str, *, within_s: float) -> Page:
        """Read one page.

        Raises:
            AgentFailure: ``PageRefused`` (address, size or redirect), ``RobotsDisallow``,
                ``PageTypeUnsupported``, ``PageMissing``, ``PageUnreadable``, ``PageUnavailable``,
                ``PageTimedOut``.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_s
        fetched = await self._fetched(url, min(within_s, self._settings.page_timeout_s))
        if not fetched.needs_browser:
            return fetched.page
        return await self._shown(fetched, ends - loop.time())

    async def _fetched(self, url: str, within_s: float) -> _Fetched:
        """The page without a browser."""
        ends = asyncio.get_running_loop().time() + within_s
        try:
            async with asyncio.timeout(within_s), self._places:
                response = await self._requested(url, ends)
                await self._check_arrival(url, response.final_url)
                return await self._page(response)
        except (TimeoutError, HttpTimedOut):
            raise AgentFailure(
                AgentErrorType.PAGE_TIMED_OUT, "The page did not come in time.", retryable=True
            ) from None
        except HttpRefused as error:
            raise AgentFailure(
                AgentErrorType.PAGE_REFUSED, error.message, {"rule": error.rule.value}
            ) from None
        except AgentFailure:
            raise
        except BosError as error:
            raise AgentFailure(
                AgentErrorType.PAGE_UNAVAILABLE,
                error.message,
                {"reason": error.reason},
                retryable=True,
            ) from None

    async def _shown(self, fetched: _Fetched, within_s: float) -> Page:
        """The page as a browser shows it, or as it was fetched where that says more."""
        plain = fetched.page
        if self._renderer is None:
            if plain.text:
                return plain
            raise AgentFailure(AgentErrorType.PAGE_UNREADABLE, _NO_BROWSER)
        try:
            shown = await self._rendered(self._renderer, fetched.response, within_s)
        except AgentFailure:
            if plain.text:
                return plain
            raise
        if len(shown.text) < len(plain.text):
            return plain
        if not shown.text:
            raise AgentFailure(
                AgentErrorType.PAGE_UNREADABLE,
                "The page holds no text that can be read, in a browser neither.",
            )
        return shown

    async def _rendered(self, renderer: Renderer, first: HttpResponse, within_s: float) -> Page:
        loop = asyncio.get_running_loop()
        ends = loop.time() + min(within_s, self._settings.browser_timeout_s)

        async def fetch(url: str) -> HttpResponse:
            return await self._requested(url, ends, follow_redirects=False)

        settings = self._settings
        visit = Visit(
            first,
            self._http,
            fetch,
            settings.site_policy().internal_origins,
            VisitLimits(settings.browser_requests, settings.browser_bytes),
        )
        rendered = await renderer.render(first.final_url, visit, within_s=within_s)
        found = await self._extraction.readable(rendered.html, max_chars=settings.max_page_chars)
        return Page(rendered.url, found.title or rendered.url, _tidy(found.text))

    async def _requested(
        self, url: str, ends: float, *, follow_redirects: bool = True
    ) -> HttpResponse:
        loop = asyncio.get_running_loop()
        parts = _parts(url)
        delay_s = await self._allowed(url)
        try:
            async with self._turns.turn(
                parts, delay_s=delay_s, within_s=max(0.0, ends - loop.time())
            ):
                return await self._http.request(
                    "GET",
                    url,
                    headers={"Accept": _ACCEPT},
                    timeout_s=max(0.0, ends - loop.time()),
                    follow_redirects=follow_redirects,
                )
        except TooSlow:
            raise AgentFailure(
                AgentErrorType.PAGE_TIMED_OUT,
                "The site wants to be asked less often than there is time for.",
                retryable=True,
            ) from None

    async def _allowed(self, url: str) -> float:
        """Seconds between requests that the host asks for.

        Raises:
            AgentFailure: ``RobotsDisallow``.
        """
        if not self._settings.robots_txt:
            return 0.0
        parts = urlsplit(url)
        rules = await self._robots.rules(f"{parts.scheme}://{parts.netloc}")
        if not rules.allow(url):
            why = "its robots.txt cannot be had" if rules.unreachable else "its robots.txt says so"
            raise AgentFailure(
                AgentErrorType.ROBOTS_DISALLOW, f"The site does not want it to be read: {why}."
            )
        return min(rules.crawl_delay_s, self._settings.max_crawl_delay_s)

    async def _check_arrival(self, asked: str, arrived: str) -> None:
        """Ask the robots.txt of where redirects led to, unless that is where they began."""
        if arrived.partition("#")[0] != asked.partition("#")[0]:
            await self._allowed(arrived)

    async def _page(self, response: HttpResponse) -> _Fetched:
        if response.status in (404, 410):
            raise AgentFailure(
                AgentErrorType.PAGE_MISSING, "There is no such page.", {"status": response.status}
            )
        if not response.ok:
            raise AgentFailure(
                AgentErrorType.PAGE_UNAVAILABLE,
                f"The site answered with status {response.status}.",
                {"status": response.status},
                retryable=response.status >= 500 or response.status == 429,
            )
        kind = response.content_type or "text/html"
        if kind in _TEXT:
            return _Fetched(self._plain(response), response, needs_browser=False)
        if kind not in _HTML:
            raise AgentFailure(
                AgentErrorType.PAGE_TYPE_UNSUPPORTED, _unsupported(kind), {"media_type": kind[:80]}
            )
        html = decoded(response.body, response.headers.get("Content-Type", ""))
        found = await self._extraction.readable(html, max_chars=self._settings.max_page_chars)
        text = _tidy(found.text)
        if not text and not found.needs_browser:
            raise AgentFailure(
                AgentErrorType.PAGE_UNREADABLE, "The page holds no text that can be read."
            )
        page = Page(response.final_url, found.title or response.final_url, text)
        return _Fetched(page, response, found.needs_browser)

    def _plain(self, response: HttpResponse) -> Page:
        text = decoded(response.body, response.headers.get("Content-Type", ""))
        if not text.strip():
            raise AgentFailure(AgentErrorType.PAGE_UNREADABLE, "The page is empty.")
        return Page(
            response.final_url,
            response.final_url.rpartition("/")[2] or response.final_url,
            _tidy(text[: self._settings.max_page_chars]),
        )


@asynccontextmanager
async def open_reader(
    settings: WebSettings,
    telemetry: Telemetry,
    *,
    resolver: Resolver | None = None,
) -> AsyncIterator[Reader]:
    """A reader, until the block is left.

    Raises:
        ConfigurationError: A browser is set and cannot be used.
    """
    http = HttpClient(settings.site_policy(), telemetry, resolver=resolver)
    robots = RobotsCache(
        http,
        user_agent=settings.user_agent,
        ttl_s=settings.robots_ttl_s,
        timeout_s=settings.page_timeout_s / 2,
    )
    extraction = Extraction(
        timeout_s=settings.extraction_timeout_s, memory_bytes=settings.extraction_memory_bytes
    )
    renderer = Renderer(settings, telemetry) if settings.browser else None
    if renderer is not None:
        await renderer.check()
    async with http, extraction:
        try:
            yield Reader(settings, http, extraction, robots, renderer)
        finally:
            await robots.close()


def _parts(url: str) -> str:
    """Host and port of an address that was checked for its form.

    Raises:
        AgentFailure: ``PageRefused``; it is no address of the web.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, None
    if parts is None or not host or parts.scheme not in ("http", "https"):
        raise AgentFailure(
            AgentErrorType.PAGE_REFUSED, "The address is not one of the web (http or https)."
        )
    return f"{host}:{port or (443 if parts.scheme == 'https' else 80)}"


def _unsupported(kind: str) -> str:
    if kind == "application/pdf":
        return "The page is a PDF, which is not read from the web; upload it as a document."
    return "The page is neither HTML nor text."


def _tidy(text: str) -> str:
    return _BLANK_LINES.sub("\n\n", text.replace("\x00", "")).strip()
