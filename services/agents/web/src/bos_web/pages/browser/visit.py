"""What one page that is rendered may request: decided and fetched by the agent, not the browser."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType, BosError
from bos_http import HttpRefused, Rule

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from bos_http import HttpClient, HttpResponse, Target

_TYPES: Final = frozenset({"Document", "Stylesheet", "Script", "XHR", "Fetch"})
"""Pictures, media, fonts, beacons and manifests hold no text; sockets no bounds."""
_MAX_DOCUMENTS = 6
_AT_ONCE = 6
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Those that say what the body is, or restrict the page. Cookies are none of them.
_HEADERS: Final = frozenset(
    {
        *("content-type", "location", "x-content-type-options", "referrer-policy"),
        *("content-security-policy", "cross-origin-resource-policy", "content-disposition"),
        *("cross-origin-opener-policy", "cross-origin-embedder-policy"),
        *("access-control-allow-origin", "access-control-allow-credentials"),
        *("access-control-expose-headers", "x-frame-options"),
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of the browser."""

    method: str
    url: str
    kind: str
    """As DevTools names it: ``Document``, ``Script``, ``XHR`` and others."""
    of_page: bool = True
    """Whether it is by the page itself, and not by a frame in it."""

    @property
    def is_page(self) -> bool:
        """Whether the page itself is loaded, rather than something for it."""
        return self.of_page and self.kind == "Document"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the browser gets."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class VisitLimits:
    """Bounds of all requests for one page.

    Args:
        requests: Number.
        total_bytes: Bodies, unpacked.
    """

    requests: int
    total_bytes: int


class Visit:
    """Answers the requests of one page.

    A page outside the network loads nothing from inside, and one inside nothing from outside, so
    that no script carries anything from one to the other.

    Args:
        first: The page as it was fetched without a browser; it is not fetched again.
        http: Client with the policy of pages.
        fetch: Fetches a page that this one leads to, under robots.txt and turns of its host,
            without following redirects; raises ``AgentFailure`` or an error of ``bos_http``.
        internal_origins: Of the policy.
        limits: Bounds.
    """

    def __init__(
        self,
        first: HttpResponse,
        http: HttpClient,
        fetch: Callable[[str], Awaitable[HttpResponse]],
        internal_origins: Collection[str],
        limits: VisitLimits,
    ) -> None:
        self._first: HttpResponse | None = first
        self._http = http
        self._fetch = fetch
        self._internal = internal_origins
        self._limits = limits
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._bytes = 0
        self._documents = 0
        self._pages: set[tuple[str, str, int]] = set()
        page = http.check(first.final_url)
        self._inside = self._is_inside(page)
        self._secure = page.scheme == "https"
        self.requests = 0
        self.refused = 0
        self.failure: AgentFailure | None = None
        """Why the page may not go where it went last."""

    async def answer(self, asked: Asked) -> Answer | None:
        """Fetch what is asked; None where it is refused or cannot be had."""
        self.requests += 1
        try:
            target = self._admitted(asked)
            response = await self._response(asked, target)
        except (AgentFailure, BosError) as error:
            self.refused += 1
            if asked.is_page and self.failure is None:
                self.failure = _as_failure(error)
            return None
        if asked.is_page and response.status not in _REDIRECTS:
            self._pages.add(target.origin)
        return _answer(response)

    def arrived(self, url: str) -> str:
        """The address that the page has in the end, checked.

        Raises:
            AgentFailure: ``PageRefused``; no page of its origin was loaded.
        """
        try:
            target = self._http.check(url)
        except HttpRefused as error:
            raise _as_failure(error) from None
        if target.origin not in self._pages:
            raise _as_failure(HttpRefused(Rule.HOST_NOT_ALLOWED))
        return target.url

    def _admitted(self, asked: Asked) -> Target:
        """The request's target, once all that needs no network is checked.

        Raises:
            HttpRefused: It is not allowed.
        """
        if self.requests > self._limits.requests:
            raise HttpRefused(Rule.RESPONSE_BODY_TOO_LARGE)
        if asked.method != "GET":
            raise HttpRefused(Rule.METHOD)
        if asked.kind not in _TYPES or (asked.kind == "Document" and not asked.of_page):
            raise HttpRefused(Rule.RESPONSE_CONTENT_TYPE)
        target = self._http.check(asked.url.partition("#")[0])
        if self._is_inside(target) != self._inside:
            raise HttpRefused(Rule.HOST_NOT_ALLOWED if self._inside else Rule.REDIRECT_INWARD)
        if asked.is_page:
            self._admit_page(target)
        return target

    def _admit_page(self, target: Target) -> None:
        if self._secure and target.scheme == "http":
            raise HttpRefused(Rule.REDIRECT_DOWNGRADE)
        self._secure = target.scheme == "https"
        self._documents += 1
        if self._documents > _MAX_DOCUMENTS:
            raise HttpRefused(Rule.REDIRECT_LIMIT)

    async def _response(self, asked: Asked, target: Target) -> HttpResponse:
        first, self._first = self._first, None
        if asked.is_page and first is not None and target.url == first.final_url:
            self._count(first)
            return first
        async with self._at_once:
            # Others have arrived while this one waited for its turn.
            self._count()
            if asked.is_page:
                response = await self._fetch(target.url)
            else:
                response = await self._http.request("GET", target.url, follow_redirects=False)
            self._count(response)
            return response

    def _count(self, response: HttpResponse | None = None) -> None:
        """Count what has arrived.

        Raises:
            HttpRefused: It is too much for one page.
        """
        self._bytes += len(response.body) if response is not None else 0
        if self._bytes > self._limits.total_bytes:
            raise HttpRefused(Rule.RESPONSE_BODY_TOO_LARGE)

    def _is_inside(self, target: Target) -> bool:
        origin = target.url_without_query.removesuffix(target.path)
        return origin in self._internal


def _answer(response: HttpResponse) -> Answer:
    headers = [(name, value) for name, value in response.headers.items() if _passes(name)]
    return Answer(response.status, headers, response.body)


def _passes(name: str) -> bool:
    return name.lower() in _HEADERS


def _as_failure(error: AgentFailure | BosError) -> AgentFailure:
    if isinstance(error, AgentFailure):
        return error
    if isinstance(error, HttpRefused):
        return AgentFailure(AgentErrorType.PAGE_REFUSED, error.message, {"rule": error.rule.value})
    return AgentFailure(
        AgentErrorType.PAGE_UNAVAILABLE, error.message, {"reason": error.reason}, retryable=True
    )
