"""One call of a search API: errors classified, the reply's JSON within its limits."""

from __future__ import annotations

import asyncio
import json
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType, BosError
from bos_http import HttpClient, HttpPolicy, HttpRefused, HttpTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bos_chassis.telemetry import Telemetry
    from bos_http import HttpResponse
    from bos_web.settings import WebSettings

MAX_REPLY_BYTES = 4 * 1024 * 1024
_LONGEST_PAUSE_S = 5.0
_LEAST_LEFT_S = 1.0
_QUOTA_WORDS = ("daily limit", "dailylimitexceeded", "quota", "usage limit", "plan's")


def search_policy(settings: WebSettings) -> HttpPolicy:
    """The search API's origin and nothing else, without redirects: the key goes nowhere else."""
    parts = urlsplit(settings.api_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    reach: dict[str, Any] = (
        {"internal_origins": {f"{parts.scheme}://{parts.netloc}": settings.search_networks}}
        if settings.search_networks
        else {"hosts": (parts.hostname or "",), "ports": (port,)}
    )
    return HttpPolicy(
        **reach,
        methods=("GET", "POST"),
        max_redirects=0,
        total_timeout_s=settings.search_timeout_s,
        max_response_bytes=MAX_REPLY_BYTES,
        user_agent=settings.user_agent,
    )


class SearchApi:
    """Calls one search API.

    Args:
        settings: Its address and limits.
        telemetry: Of the service.
        key: Its key as it is now, and, with True, read anew.
    """

    def __init__(
        self, settings: WebSettings, telemetry: Telemetry, key: Callable[[bool], str]
    ) -> None:
        self._url = settings.api_url
        self._timeout_s = settings.search_timeout_s
        self._key = key
        self.http = HttpClient(search_policy(settings), telemetry)
        """Opened by the service."""

    async def call(
        self,
        prepared: Callable[[str], tuple[str, Mapping[str, str], bytes | None]],
        *,
        within_s: float,
    ) -> dict[str, Any]:
        """The JSON object that the API replies.

        A key that is refused is read anew and tried once more; so is a call that was too early, if
        the API names a pause of at most five seconds that the step has time for.

        Args:
            prepared: Makes of the key what is added to the address, headers, and body of a POST.
            within_s: Time left.

        Raises:
            AgentFailure: as ``SearchProvider.search``.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + min(within_s, 2 * self._timeout_s + _LONGEST_PAUSE_S)
        key = self._key(False)
        response = await self._send(prepared(key), ends - loop.time())
        if response.status in (401, 403):
            renewed = self._key(True)
            if renewed != key:
                key = renewed
                response = await self._send(prepared(key), ends - loop.time())
        elif response.status in (429, 503) and not _is_quota(response):
            pause = retry_after_s(response)
            if pause <= _LONGEST_PAUSE_S and ends - loop.time() > pause + _LEAST_LEFT_S:
                await asyncio.sleep(pause)
                response = await self._send(prepared(key), ends - loop.time())
        return _object(response)

    async def _send(
        self, request: tuple[str, Mapping[str, str], bytes | None], within_s: float
    ) -> HttpResponse:
        query, headers, body = request
        try:
            return await self.http.request(
                "GET" if body is None else "POST",
                self._url + query,
                headers={"Accept": "application/json", **headers},
                body=body,
                timeout_s=max(0.0, min(within_s, self._timeout_s)),
            )
        except HttpTimedOut:
            raise AgentFailure(
                AgentErrorType.SEARCH_TIMED_OUT,
                "The web search did not answer in time.",
                retryable=True,
            ) from None
        except HttpRefused as error:
            raise AgentFailure(
                AgentErrorType.SEARCH_REFUSED,
                "The web search's address or reply is not allowed; an operator has to look at "
                "BOS_WEB_SEARCH_URL and BOS_WEB_SEARCH_NETWORKS.",
                {"rule": error.rule.value},
            ) from None
        except BosError as error:
            raise AgentFailure(
                AgentErrorType.SEARCH_UNAVAILABLE,
                "The web search cannot be reached.",
                {"reason": error.reason},
                retryable=True,
            ) from None


def _object(response: HttpResponse) -> dict[str, Any]:
    if not response.ok:
        raise _failure(response)
    try:
        said = json.loads(response.body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise AgentFailure(
            AgentErrorType.SEARCH_REPLY_INVALID,
            "The web search replied something that is no result.",
        )
    return said


def _failure(response: HttpResponse) -> AgentFailure:
    status = response.status
    details: dict[str, Any] = {"status": status}
    if status in (432, 433) or _is_quota(response):
        return AgentFailure(
            AgentErrorType.SEARCH_QUOTA_EXCEEDED, "The quota of the web search is used up.", details
        )
    if status in (401, 403) or _says(response, "api key not valid", "api_key_invalid"):
        return AgentFailure(
            AgentErrorType.SEARCH_UNAUTHORIZED,
            "The web search refused its key; an operator has to look at BOS_WEB_SEARCH_KEY.",
            details,
        )
    if status == 429:
        return AgentFailure(
            AgentErrorType.SEARCH_RATE_LIMITED,
            "The web search is asked too often at the moment; try again later.",
            {**details, "retry_after_s": retry_after_s(response)},
            retryable=True,
        )
    if status >= 500:
        return AgentFailure(
            AgentErrorType.SEARCH_UNAVAILABLE,
            "The web search does not work.",
            details,
            retryable=True,
        )
    return AgentFailure(
        AgentErrorType.SEARCH_REPLY_INVALID, "The web search refused the search.", details
    )


def _is_quota(response: HttpResponse) -> bool:
    if response.status not in (403, 429):
        return False
    # Google says "quota" for limits of a minute as well.
    return _says(response, *_QUOTA_WORDS) and not _says(response, "per minute")


def _says(response: HttpResponse, *words: str) -> bool:
    text = response.body[:8_192].decode("utf-8", "replace").lower()
    return any(word in text for word in words)


def retry_after_s(response: HttpResponse) -> float:
    """Seconds that ``Retry-After`` names, a number or a date; 1 where it says nothing usable."""
    said = response.headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdecimal():
        return float(min(int(said[:6]), 86_400))
    try:
        when, sent = (
            parsedate_to_datetime(each) for each in (said, response.headers.get("Date", ""))
        )
        return min(max(0.0, (when - sent).total_seconds()), 86_400.0)
    except (ValueError, TypeError):
        return 1.0
