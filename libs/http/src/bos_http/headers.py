"""Request headers: what a caller may set, and what travels on to another origin."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from multidict import CIMultiDict

from bos_chassis.auth.callers import RUN_TOKEN_KEY
from bos_http.errors import HttpRefused, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos_http.policy import HttpPolicy

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?\Z")
# Framing, routing and encoding are the client's; trace context is the policy's; the run token is
# for Bos services alone and must never leave.
_RESERVED = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "te", "trailer", "connection"),
        *("keep-alive", "upgrade", "expect", "accept-encoding", "http2-settings"),
        *("traceparent", "tracestate", "baggage", RUN_TOKEN_KEY),
    }
)
_RESERVED_PREFIXES = ("proxy-", "sec-")
# Everything else may be a credential: an allow-list, because API keys have any name.
_HARMLESS_ELSEWHERE = frozenset({"accept", "accept-language", "user-agent"})
# "name: value\r\n"
_OVERHEAD_BYTES = 4
_ENCODINGS = "gzip, deflate"


def checked_headers(given: Mapping[str, str], policy: HttpPolicy) -> CIMultiDict[str]:
    """The caller's headers on top of our own.

    Raises:
        HttpRefused: A header is reserved, not plain ASCII, or they are too large together.
    """
    if sum(len(n) + len(v) + _OVERHEAD_BYTES for n, v in given.items()) > (
        policy.max_request_header_bytes
    ):
        raise HttpRefused(Rule.REQUEST_HEADERS_TOO_LARGE)
    headers = CIMultiDict({"Accept": "*/*", "User-Agent": policy.user_agent})
    for name, value in given.items():
        lower = name.lower()
        if (
            not _NAME.match(name)
            or not _VALUE.match(value)
            or lower in _RESERVED
            or lower.startswith(_RESERVED_PREFIXES)
        ):
            raise HttpRefused(Rule.REQUEST_HEADER)
        headers[name] = value
    headers["Accept-Encoding"] = _ENCODINGS
    return headers


def without_body(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """For a GET that follows a POST: nothing that describes the body."""
    return CIMultiDict(
        (name, value) for name, value in headers.items() if not name.lower().startswith("content-")
    )


def for_other_origin(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """What another origin may see: no credentials, no cookies, nothing that could be either."""
    kept = CIMultiDict((n, v) for n, v in headers.items() if n.lower() in _HARMLESS_ELSEWHERE)
    kept["Accept-Encoding"] = _ENCODINGS
    return kept
