"""Where this process commits, seen from outside: how tests end it at every kind of commit.

Nothing of the product gives an observer, and no setting does: what could stop a gateway at will has
no business in production. Without one, nothing is even counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bos.runlog.v1 import LogEvent

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
STATEMENTS: Final = frozenset(
    {TAKE_LEASE, RENEW, ADOPT, RELEASE, RELEASE_ALL, BURY, ADD_INPUT, DECIDE}
)
"""Every kind of commit beside those that write events; those are named by their events' kinds."""


class CommitObserver(Protocol):
    """Told about every commit, in the thread that makes it."""

    def before(self, kinds: frozenset[str]) -> None:
        """A statement that commits these kinds is about to be sent."""

    def after(self, kinds: frozenset[str]) -> None:
        """Its commit was acknowledged, and nobody has been told yet."""


@contextmanager
def committing(observer: CommitObserver | None, kinds: Iterable[str]) -> Iterator[set[str]]:
    """The block sends a statement; leaving it in peace means that its commit was acknowledged.

    Yields:
        What is being committed; the block takes out what turned out to be nothing.
    """
    if observer is None:
        yield set()
        return
    found = set(kinds)
    observer.before(frozenset(found))
    yield found
    observer.after(frozenset(found))


def kinds_of(events: Iterable[LogEvent]) -> Iterator[str]:
    """The kinds of these events, found out only if somebody asks."""
    return (event.WhichOneof("event") or "" for event in events)
