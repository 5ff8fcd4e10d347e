"""The client: one session, one policy, every hop checked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from yarl import URL

from bos_chassis.deadlines import timeout_for
from bos_http.body import BodyReader
from bos_http.errors import Failure, HttpFailed, HttpRefused, HttpTimedOut, Rule
from bos_http.gate import Gate
from bos_http.headers import checked_headers
from bos_http.observe import Observer
from bos_http.redirects import REPEATABLE, Hop, next_hop
from bos_http.resolver import CheckedResolver, SystemResolver
from bos_http.response import HttpResponse, HttpStream, clean_headers, media_type
from bos_http.transport import open_session, tls_context, translated
from bos_http.url import parse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    import aiohttp

    from bos_chassis.telemetry import Telemetry
    from bos_http.observe import ObservedCall
    from bos_http.policy import HttpPolicy
    from bos_http.resolver import Resolver
    from bos_http.url import Target

# "name: value\r\n", as sent
_HEADER_OVERHEAD_BYTES = 4
_NO_BODY = frozenset({204, 304})


class HttpClient:
    """Calls what the policy allows, and nothing else: an async context manager, one per service.

    Connections are kept between calls, cookies are not. Proxies, ``.netrc`` and the variables that
    name them are ignored.

    Args:
        policy: What may be called, and the limits.
        telemetry: Of the calling service.
        resolver: Where addresses come from; the operating system's if None.
    """

    def __init__(
        self, policy: HttpPolicy, telemetry: Telemetry, *, resolver: Resolver | None = None
    ) -> None:
        self._policy = policy
        self._gate = Gate(policy)
        self._resolver = CheckedResolver(resolver or SystemResolver(), self._gate)
        self._observer = Observer(telemetry)
        self._propagator = TraceContextTextMapPropagator()
        self._repeatable: aiohttp.ClientSession | None = None
        self._once: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session.

        Raises:
            ConfigurationError: The policy's ``ca_file`` cannot be read.
        """
        using = (self._policy, self._gate, self._resolver, tls_context(self._policy))
        self._repeatable = open_session(*using, repeatable=True)
        self._once = open_session(*using, repeatable=False)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in (self._repeatable, self._once):
            if session is not None:
                await session.close()
        self._repeatable = self._once = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float | None = None,
        content_types: Sequence[str] | None = None,
        follow_redirects: bool = True,
        read_body: bool = True,
    ) -> HttpResponse:
        """Send one request, follow its redirects, and return the complete response.

        Any status is a response; only the policy and the network raise. Headers that could hold a
        credential are sent to the origin of ``url`` alone.

        Args:
            method: Upper case.
            url: Absolute, without user and password.
            headers: Plain ASCII; not those of framing, routing, encoding or trace context.
            body: Sent as it is; say what it is in a ``Content-Type`` header.
            timeout_s: For the whole call; the policy's total and what is left of the server call
                in progress bound it from above.
            content_types: Instead of the policy's, such as ``("application/json",)``. They are
                asked of bodies of 2xx responses.
            follow_redirects: False returns a redirect as the response, so that one request at
                most is sent.
            read_body: False returns the response once its headers have come, with an empty body;
                its body is not read, and the connection is closed if one is coming.

        Raises:
            HttpRefused: The policy forbids the request, a redirect, or the response.
            HttpTimedOut: Time is up.
            HttpFailed: The host cannot be reached, or does not answer properly.
        """
        if self._repeatable is None:
            raise RuntimeError("the client is not open; use it as an async context manager")
        total_s = self._policy.total_timeout_s
        limit_s = min(total_s, timeout_for(timeout_s, total_s))
        types = self._policy.content_types if content_types is None else content_types
        with self._observer.call(method) as call:
            if limit_s <= 0:
                raise HttpTimedOut
            hop = self._first_hop(method, url, headers or {}, body, call)
            try:
                async with asyncio.timeout(limit_s):
                    return await self._follow(
                        hop, types, call, redirects=follow_redirects, read_body=read_body
                    )
            except TimeoutError:
                raise HttpTimedOut from None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> AsyncIterator[HttpStream]:
        """Send one request; gives the response while its body arrives, such as server-sent events.

        No redirect is followed: it is the response. Each piece may take the policy's
        ``read_timeout_s``, and the body as a whole ``max_response_bytes``; how long all of it may
        take is the caller's decision. Leaving the block hangs up.

        Args:
            method: As for :meth:`request`.
            url: As for :meth:`request`.
            headers: As for :meth:`request`.
            body: As for :meth:`request`.

        Raises:
            HttpRefused, HttpTimedOut, HttpFailed: As :meth:`request`, also while the body is read.
        """
        if self._repeatable is None or self._once is None:
            raise RuntimeError("the client is not open; use it as an async context manager")
        with self._observer.call(method) as call:
            hop = self._first_hop(method, url, headers or {}, body, call)
            call.hop(hop)
            session = self._repeatable if hop.method in REPEATABLE else self._once
            with translated():
                async with self._sent(session, hop, call) as response:
                    self._check_head(response)
                    call.answered(response.status)
                    encodings = ",".join(response.headers.getall("Content-Encoding", []))
                    reader = BodyReader(self._policy, encodings)
                    yield HttpStream(
                        response.status,
                        clean_headers(response.headers),
                        _translated(reader.pieces(response.content.iter_any())),
                    )

    def check(self, url: str) -> Target:
        """Check a URL against the policy without calling it; returns it as it would be sent.

        The addresses that its name resolves to are checked by :meth:`request` alone.

        Raises:
            HttpRefused: The URL is not plain, or its host, port or scheme is not allowed.
        """
        target = parse(url, max_chars=self._policy.max_url_chars)
        self._gate.admit(target)
        return target

    def _first_hop(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        call: ObservedCall,
    ) -> Hop:
        policy = self._policy
        if method not in policy.methods:
            raise HttpRefused(Rule.METHOD)
        target = parse(url, max_chars=policy.max_url_chars)
        call.host = target.host
        host_class = self._gate.admit(target)
        if body is not None and len(body) > policy.max_request_bytes:
            raise HttpRefused(Rule.REQUEST_BODY_TOO_LARGE)
        return Hop(method, target, host_class, checked_headers(headers, policy), body)

    async def _follow(
        self,
        hop: Hop,
        types: Sequence[str],
        call: ObservedCall,
        *,
        redirects: bool,
        read_body: bool,
    ) -> HttpResponse:
        for _ in range(self._policy.max_redirects + 1):
            call.hop(hop)
            answer = await self._exchange(
                hop, types, call, redirects=redirects, read_body=read_body
            )
            if isinstance(answer, HttpResponse):
                return answer
            hop = answer
        raise HttpRefused(Rule.REDIRECT_LIMIT)

    async def _exchange(
        self,
        hop: Hop,
        types: Sequence[str],
        call: ObservedCall,
        *,
        redirects: bool,
        read_body: bool,
    ) -> HttpResponse | Hop:
        """Send one hop; the response, or the hop it leads to."""
        session = self._repeatable if hop.method in REPEATABLE else self._once
        if session is None:
            raise HttpFailed(Failure.INTERRUPTED)
        with translated():
            async with self._sent(session, hop, call) as response:
                # Leaving hangs up unless the host has sent all of its response.
                self._check_head(response)
                locations = response.headers.getall("Location", []) if redirects else []
                following = next_hop(hop, response.status, locations, self._gate, self._policy)
                if following is not None:
                    return following
                body = await self._body(hop, response, types) if read_body else b""
        call.answered(response.status)
        return HttpResponse(
            status=response.status,
            headers=clean_headers(response.headers),
            body=body,
            final_url=hop.target.url,
            elapsed_s=call.elapsed_s(),
        )

    def _sent(
        self, session: aiohttp.ClientSession, hop: Hop, call: ObservedCall
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return session.request(
            hop.method,
            # Already canonical: nothing may be rewritten after the check.
            URL(hop.target.url, encoded=True),
            headers=self._headers(hop, call),
            skip_auto_headers=("Content-Type",),
            data=hop.body,
            allow_redirects=False,
        )

    def _headers(self, hop: Hop, call: ObservedCall) -> Mapping[str, str]:
        if not self._gate.traces(hop.target, hop.host_class):
            return hop.headers
        headers = hop.headers.copy()
        self._propagator.inject(headers, trace.set_span_in_context(call.span))
        return headers

    def _check_head(self, response: aiohttp.ClientResponse) -> None:
        if response.status < 200:
            raise HttpFailed(Failure.PROTOCOL)
        size = sum(len(n) + len(v) + _HEADER_OVERHEAD_BYTES for n, v in response.raw_headers)
        if size > self._policy.max_response_header_bytes:
            raise HttpRefused(Rule.RESPONSE_HEADERS_TOO_LARGE)

    async def _body(
        self, hop: Hop, response: aiohttp.ClientResponse, types: Sequence[str]
    ) -> bytes:
        if hop.method == "HEAD" or response.status in _NO_BODY:
            return b""
        if types and 200 <= response.status < 300:
            _check_type(response.headers.get("Content-Type", ""), types)
        encodings = ",".join(response.headers.getall("Content-Encoding", []))
        reader = BodyReader(self._policy, encodings)
        return await reader.read(response.content.iter_any(), response.content_length)


async def _translated(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with translated():
        async for piece in pieces:
            yield piece


def _check_type(given: str, allowed: Sequence[str]) -> None:
    kind = media_type(given)
    family = kind.partition("/")[0] + "/*"
    if kind not in allowed and family not in allowed:
        raise HttpRefused(Rule.RESPONSE_CONTENT_TYPE)
