"""The HTTP side of the ``openai`` client, without the steps that a model call never needs.

A general client looks at cookies, authentication flows, redirects and hooks around every request,
and parses its URL three times. Here a reply that is not a redirect takes the short way; everything
else is what the client package does.
"""

from __future__ import annotations

import email.utils
import math
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import httpx2
from openai import DefaultAioHttpClient

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

_MAX_URLS = 16
_LONGEST_WAIT_S = 86_400.0


def _tls() -> ssl.SSLContext:
    """The client package's TLS context, shared by endpoints: reading authorities takes 40 ms."""
    return _tls_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@lru_cache(maxsize=4)
def _tls_of(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # reads the two variables itself


class ModelHttpClient(DefaultAioHttpClient):
    """For ``AsyncOpenAI(http_client=…)``; connections, proxies and time-outs as in its base."""

    def __init__(self) -> None:
        super().__init__(verify=_tls())
        self._parsed: dict[str, httpx2.URL] = {}

    def build_request(self, method: str, url: httpx2.URL | str, **options: Any) -> httpx2.Request:
        """Build a request as the base does, parsing each URL once: an endpoint has a handful."""
        known = self._parsed.get(str(url))
        if known is None:
            known = httpx2.URL(url)
            if len(self._parsed) < _MAX_URLS:
                self._parsed[str(url)] = known
        return super().build_request(method, known, **options)

    async def send(
        self, request: httpx2.Request, *, stream: bool = False, **options: Any
    ) -> httpx2.Response:
        """Send a request; redirects and unusual options go the base's way."""
        if options or self.is_closed:
            return await super().send(request, stream=stream, **options)
        response = await self._transport_for_url(request.url).handle_async_request(request)
        response.request = request
        if response.has_redirect_location:
            await response.aclose()
            return await super().send(request, stream=stream)
        if not stream:
            try:
                await response.aread()
            except BaseException:
                await response.aclose()
                raise
        return response


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that the endpoint asks to wait: plain, in milliseconds, or until a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return min(max(0.0, seconds), _LONGEST_WAIT_S)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(max(0.0, date.timestamp() - time.time()), _LONGEST_WAIT_S)
