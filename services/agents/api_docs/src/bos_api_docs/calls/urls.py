"""URL of a call: base URL by priority, path with its parameters, query. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urljoin, urlsplit

from bos_agentkit import AgentFailure
from bos_api_docs.catalogue.model import placeholders, substituted
from bos_errors import AgentErrorType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bos_http import Target

CONTEXT_KEYS = ("api_base_url", "base_url")
_MAX_PATH_CHARS = 2_000
_MAX_QUERY = 60
_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE_IN_PATH = "!$&'()*+,;=:@-._~%/"
_ENCODED = re.compile(r"%(?:2f|5c|00|0a|0d|25)", re.IGNORECASE)
# Frameworks take these for another method than the request's own.
_METHOD_OVERRIDES = frozenset({"_method", "x-http-method-override", "x-http-method"})


@dataclass(frozen=True, slots=True)
class Base:
    """Base URL of a call, checked, and who named it."""

    target: Target
    from_context: bool
    """Whether the request named it; otherwise the operator did."""

    @property
    def prefix(self) -> str:
        """Everything that paths are appended to; no final slash."""
        return self.target.url_without_query.rstrip("/")

    def holds(self, target: Target) -> bool:
        """Whether ``target`` is below this base URL."""
        below = self.target.path.rstrip("/") + "/"
        return target.origin == self.target.origin and f"{target.path}/".startswith(below)


def context_base(context: Mapping[str, Any]) -> str:
    """Base URL that the request names; empty if none."""
    return next((text for key in CONTEXT_KEYS if (text := text_of(context, key))), "")


def text_of(context: Mapping[str, Any], key: str) -> str:
    """Text of a context field; empty where it is missing or no text."""
    value = context.get(key)
    return str(value.string_value).strip() if value is not None else ""


def checked_base(url: str, check: Callable[[str], Target], *, from_context: bool) -> Base:
    """Base URL after the checks of the HTTP policy.

    Raises:
        HttpRefused: the policy does not allow it.
        AgentFailure: it has a query or a fragment, or its path has dot segments.
    """
    target = check(url)
    if target.query or "#" in url or _has_dots(target.path):
        raise AgentFailure(
            AgentErrorType.CONFIGURATION_ERROR,
            "The base URL of the API must end with its path: no query, no fragment, no dots.",
        )
    return Base(target, from_context)


def rendered_path(path: str, values: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """Path with its parameters percent-encoded, and the query that it carried.

    Args:
        path: As planned: relative to the base URL, with ``{name}`` or ``:name`` placeholders.
        values: Values by name of the placeholder, with or without its mark.

    Raises:
        AgentFailure: PathResolutionError; a value is missing or empty, or the path is not plain.
    """
    plain, _, query = path.partition("?")
    if not plain.startswith("/") or plain.startswith("//") or len(plain) > _MAX_PATH_CHARS:
        raise _unresolved("a path begins with one slash and holds no host", path)
    if "#" in path or "\\" in plain or _BROKEN_PERCENT.search(plain) or _is_odd(plain):
        raise _unresolved("a path holds no spaces, control characters, backslashes or #", path)
    given = {name.strip("{}:").strip(): value for name, value in values.items()}
    wanted = placeholders(plain)
    missing = [name for name in wanted if not given.get(name, "").strip()]
    if missing:
        raise _unresolved(f"no value for {', '.join(missing)}", path)
    encoded = {name: quote(given[name], safe="") for name in wanted}
    if any(unquote(value) in (".", "..") for value in encoded.values()):
        raise _unresolved("a parameter of a path is neither . nor ..", path)
    template = quote(plain, safe=_SAFE_IN_PATH + "{}")
    if _has_dots(template) or _ENCODED.search(template):
        raise _unresolved("a path holds no . or .. segments and no encoded slashes", path)
    whole = substituted(template, encoded)
    if placeholders(template) and set(placeholders(template)) - set(encoded):
        raise _unresolved("a placeholder is left", path)
    if "{" in whole or "}" in whole:
        raise _unresolved("a placeholder is left", path)
    return whole, parse_qsl(query, keep_blank_values=True)[:_MAX_QUERY]


def rendered_query(carried: Iterable[tuple[str, str]], planned: Mapping[str, str]) -> str:
    """Query string: what the path carried, then the plan's own, which replaces the same names.

    Raises:
        AgentFailure: PathResolutionError; a parameter would change the method, or there are too
            many.
    """
    pairs = [(name, value) for name, value in carried if name not in planned]
    pairs += planned.items()
    if len(pairs) > _MAX_QUERY or any(name.lower() in _METHOD_OVERRIDES for name, _ in pairs):
        raise _unresolved(
            f"a query has at most {_MAX_QUERY} parameters, and none that changes the method", ""
        )
    return urlencode(pairs, quote_via=quote, errors="replace")


def with_query(url: str, changes: Mapping[str, str]) -> str:
    """``url`` with these query parameters set."""
    base, _, query = url.partition("?")
    kept = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] not in changes]
    return f"{base}?{urlencode([*kept, *changes.items()], quote_via=quote, errors='replace')}"


def query_of(url: str) -> dict[str, str]:
    """Query parameters of ``url``; the last one of a name counts."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def joined(url: str, reference: str) -> str:
    """``reference`` relative to ``url``; empty where they cannot be joined."""
    try:
        return urljoin(url, reference)
    except ValueError:
        return ""


def _has_dots(path: str) -> bool:
    return any(unquote(unquote(part)) in (".", "..") for part in path.split("/"))


def _is_odd(path: str) -> bool:
    return any(char.isspace() or not char.isprintable() for char in path)


def _unresolved(problem: str, path: str) -> AgentFailure:
    return AgentFailure(
        AgentErrorType.PATH_RESOLUTION_ERROR,
        f"The path of the planned call cannot be used: {problem}.",
        {"path": path[:_MAX_PATH_CHARS]} if path else {},
    )
