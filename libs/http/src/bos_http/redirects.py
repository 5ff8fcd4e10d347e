"""One hop of a call, and the next one if the server asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_http.errors import HttpRefused, Rule
from bos_http.gate import HostClass
from bos_http.headers import for_other_origin, without_body
from bos_http.url import follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multidict import CIMultiDict

    from bos_http.gate import Gate
    from bos_http.policy import HttpPolicy
    from bos_http.url import Target

REDIRECTS = frozenset({301, 302, 303, 307, 308})
REPEATABLE = frozenset({"GET", "HEAD"})
"""What may be sent twice."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One request to one host that was let through."""

    method: str
    target: Target
    host_class: HostClass
    headers: CIMultiDict[str]
    body: bytes | None


def next_hop(
    hop: Hop, status: int, locations: Sequence[str], gate: Gate, policy: HttpPolicy
) -> Hop | None:
    """Where a response sends us, checked like a first URL; None if nowhere.

    Raises:
        HttpRefused: The place is not allowed, less protected than this one, inside the network
            while this one is outside, or would be sent a request that may change things.
    """
    if status not in REDIRECTS or not locations:
        return None
    if len(set(locations)) > 1:
        raise HttpRefused(Rule.REDIRECT_AMBIGUOUS)
    target = follow(hop.target, locations[0], max_chars=policy.max_url_chars)
    if hop.target.scheme == "https" and target.scheme == "http":
        raise HttpRefused(Rule.REDIRECT_DOWNGRADE)
    host_class = gate.admit(target)
    if host_class is HostClass.INTERNAL and hop.host_class is not HostClass.INTERNAL:
        raise HttpRefused(Rule.REDIRECT_INWARD)
    method, headers, body = hop.method, hop.headers, hop.body
    if method not in REPEATABLE or body is not None:
        method, headers, body = _read_result(hop, status, policy)
    if target.origin != hop.target.origin:
        headers = for_other_origin(headers)
    return Hop(method, target, host_class, headers, body)


def _read_result(
    hop: Hop, status: int, policy: HttpPolicy
) -> tuple[str, CIMultiDict[str], bytes | None]:
    """The GET that reads the result of a POST; any other repetition is not approved."""
    if status != 303 and not (status in (301, 302) and hop.method == "POST"):
        raise HttpRefused(Rule.REDIRECT_REPEATS_BODY)
    if "GET" not in policy.methods:
        raise HttpRefused(Rule.METHOD)
    return "GET", without_body(hop.headers), None
