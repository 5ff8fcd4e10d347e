"""Headers of a call: what a plan may set, and credentials, which are never shown. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from bos_agentkit import AgentFailure
from bos_api_docs.catalogue.model import Operation
from bos_errors import AgentErrorType

IDEMPOTENCY_KEY = "Idempotency-Key"
ACCEPT = "application/json"
_MAX_HEADERS = 30
_MAX_CHARS = 1_000
# Anything else a plan sets only if the catalogue documents it as a parameter of the operation.
_HARMLESS = frozenset(
    {
        *("accept", "accept-language", "content-type", "if-match", "if-none-match"),
        *("if-modified-since", "if-unmodified-since", "prefer", "x-request-id"),
    }
)
# Never set by a plan, documented or not: credentials, framing, and what changes whom or what a
# request is for.
_NEVER = frozenset(
    {
        *("authorization", "proxy-authorization", "cookie", "host", "content-length"),
        *("transfer-encoding", "te", "trailer", "connection", "keep-alive", "upgrade", "expect"),
        *("accept-encoding", "forwarded", "idempotency-key", "origin", "referer", "via"),
        *("x-http-method", "x-http-method-override", "x-method-override"),
        *("x-original-url", "x-rewrite-url", "x-original-method"),
    }
)
_NEVER_PREFIXES = ("x-forwarded-", "proxy-", "sec-", "bos-")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}\Z")
_VALUE = re.compile(r"[!-~](?:[\t -~]*[!-~])?\Z")


def plan_headers(
    given: Mapping[str, str], operation: Operation | None
) -> tuple[dict[str, str], list[str]]:
    """Headers of a plan that may be sent, and the names of those that may not."""
    documented = operation.documents("header") if operation is not None else frozenset()
    kept: dict[str, str] = {}
    refused: list[str] = []
    for name, value in list(given.items())[:_MAX_HEADERS]:
        lower = name.strip().lower()
        allowed = (
            (lower in _HARMLESS or lower in documented)
            and lower not in _NEVER
            and not lower.startswith(_NEVER_PREFIXES)
            and _NAME.match(name.strip()) is not None
            and _VALUE.match(value.strip()) is not None
            and len(value) <= _MAX_CHARS
        )
        if allowed:
            kept[name.strip()] = value.strip()
        else:
            refused.append(name[:100])
    return kept, refused


def context_headers(secret: str) -> dict[str, str]:
    """Headers that the request's ``api_headers`` hold, a map as JSON.

    Raises:
        AgentFailure: they are no map of texts; the text of the credential is not repeated.
    """
    if not secret:
        return {}
    try:
        given = json.loads(secret)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or len(given) > _MAX_HEADERS:
        raise _unusable()
    if not all(isinstance(value, str | int | float | bool) for value in given.values()):
        raise _unusable()
    texts = {str(name).strip(): str(value).strip() for name, value in given.items()}
    if not all(_NAME.match(name) and _VALUE.match(value) for name, value in texts.items()):
        raise _unusable()
    return texts


def combined(*layers: Mapping[str, str]) -> dict[str, str]:
    """All layers as one; later ones replace earlier ones, case-insensitively."""
    found: dict[str, tuple[str, str]] = {}
    for layer in layers:
        for name, value in layer.items():
            found[name.lower()] = (name, value)
    return dict(found.values())


def idempotency_key(key: str) -> str:
    """The step's key as a header value."""
    return key if _VALUE.match(key) else key.encode("ascii", "backslashreplace").hex()[:200]


def _unusable() -> AgentFailure:
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        "context.api_headers must be a map of header names to texts. Correct the request.",
    )
