"""Agents' cards by digest: stored once, however many runs are accepted with them.

The first event of a run holds the cards of all agents, as they were then, for the whole life of the
run. In the log their digest stands in their place, and whoever folds a log puts them back. Sets of
cards are never deleted: there is one for each change of an agent that a question has followed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from attrs import define, field

from bos.runlog.v1 import LogEvent, RunAccepted
from bos_gateway.run_state import BrokenLog
from bos_postgres import execute, fetchval

if TYPE_CHECKING:
    import asyncpg

_CACHED: Final = 64
_STORE = "INSERT INTO cards (digest, payload) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_LOAD = "SELECT payload FROM cards WHERE digest = $1"


@define(eq=False)
class StoredCards:
    """Sets of cards, by the digest of their serialised form."""

    _pool: asyncpg.Pool[asyncpg.Record]
    _known: dict[bytes, bytes] = field(init=False, factory=dict)

    async def without(self, event: LogEvent) -> LogEvent:
        """A RunAccepted event as it is stored: its cards are, and it names them by their digest.

        Raises:
            Unavailable: the store is away.
        """
        cards = RunAccepted(cards=event.run_accepted.cards)
        payload = cards.SerializeToString(deterministic=True)
        digest = hashlib.sha256(payload).digest()
        if digest not in self._known:
            await execute(self._pool, _STORE, digest, payload)
            self._keep(digest, payload)
        stored = LogEvent()
        stored.CopyFrom(event)
        stored.run_accepted.ClearField("cards")
        stored.run_accepted.cards_digest = digest
        return stored

    async def put_back(self, event: LogEvent) -> None:
        """Put the cards that a stored RunAccepted event names into it, in place.

        Raises:
            BrokenLog: they are not stored.
            Unavailable: the store is away.
        """
        accepted = event.run_accepted
        digest = accepted.cards_digest
        if not digest or accepted.cards:
            return
        if digest not in self._known:
            payload = await fetchval(self._pool, _LOAD, digest)
            if payload is None:
                raise BrokenLog(f"the agents' cards {digest.hex()} are not stored")
            self._keep(digest, payload)
        accepted.MergeFromString(self._known[digest])

    def _keep(self, digest: bytes, payload: bytes) -> None:
        self._known[digest] = payload
        if len(self._known) > _CACHED:
            del self._known[next(iter(self._known))]
