"""Commit points of a gateway, seen in the statements that asyncpg sends, by kind.

The product knows nothing of this. What a gateway commits for its runs is one statement each: one of
:data:`_STATEMENTS`, or one that writes events, which is identified by their kinds.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import asyncpg

from bos_gateway.ownership import lease, owners
from bos_gateway.run_log import approvals, statements

TAKE_LEASE: Final = "take_lease"
"""The lease is taken, and what is still ours with it."""
RENEW: Final = "renew_lease"
"""The lease is renewed."""
ADOPT: Final = "adopt"
"""Runs of others become ours; their ``run_adopted`` comes later."""
RELEASE: Final = "release"
"""One run is let go."""
RELEASE_ALL: Final = "release_all"
"""Every run is let go, and the lease."""
BURY: Final = "bury"
"""Runs of replicas whose leases ran out are freed, and their failures counted."""
ADD_INPUT: Final = "add_input"
"""An input for a run's owner is stored."""
DECIDE: Final = "decide_approval"
"""A person's decision is stored, or that there was none in time, with its input."""

_STATEMENTS: Final = {
    owners._TAKE: TAKE_LEASE,
    owners._ADOPT: ADOPT,
    owners._RELEASE: RELEASE,
    owners._RELEASE_ALL: RELEASE_ALL,
    owners._BURY: BURY,
    owners._ADD_INPUT: ADD_INPUT,
    lease._RENEW: RENEW,
    approvals._DECIDE: DECIDE,
}
STATEMENTS: Final = frozenset(_STATEMENTS.values())
"""Every kind of commit beside those that write events; those are named by their events' kinds."""
# One that finds nothing to take, free or store commits nothing.
_MAY_BE_NOTHING: Final = STATEMENTS - {RENEW, DECIDE}
_KINDS_OF_EVENTS: Final = 11  # $12 of both statements that append


def observe(observer: Any) -> None:
    """Call ``before`` and ``after`` of the observer, with its kinds, for every later commit.

    Before it is sent, and after it was acknowledged but before any client was notified.
    """
    for method in ("fetch", "fetchval"):  # with these the gateway sends what commits
        _observe(method, observer)


def _observe(method: str, observer: Any) -> None:
    send: Any = getattr(asyncpg.Connection, method)

    @functools.wraps(send)
    async def observed(connection: Any, sql: str, *arguments: Any, **options: Any) -> Any:
        kinds = _kinds(sql, arguments)
        if kinds:
            observer.before(kinds)
        found = await send(connection, sql, *arguments, **options)
        if kinds and (found or not kinds <= _MAY_BE_NOTHING):
            observer.after(kinds)
        return found

    setattr(asyncpg.Connection, method, observed)


def _kinds(sql: str, arguments: tuple[Any, ...]) -> frozenset[str]:
    if sql == statements.ACCEPT:
        return frozenset({"run_accepted"})
    if sql in statements.APPENDS.values():
        return frozenset(arguments[_KINDS_OF_EVENTS])
    return frozenset({_STATEMENTS[sql]}) if sql in _STATEMENTS else frozenset()
