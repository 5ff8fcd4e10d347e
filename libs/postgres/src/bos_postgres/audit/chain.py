"""The chain of hashes over an audit trail. Pure.

The hash of a row is SHA-256 over the hash before it (nothing for the first row) and the row as
JSON: an array of position, time (microseconds since 1970), actor, kind of actor, action, target,
outcome, address and details, in UTF-8, without white space, with the details' keys in order.
Any reader can check an export with these two sentences.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from attrs import frozen

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@frozen
class Defect:
    """Position and kind of a break in a trail."""

    position: int
    problem: str


def next_hash(before: bytes, entry: SealedEntry) -> bytes:
    """The hash of ``entry``, which follows a row whose hash is ``before``."""
    row = [
        entry.position,
        (entry.occurred_at - _EPOCH) // _MICROSECOND,
        entry.actor,
        entry.actor_kind,
        entry.action,
        entry.target,
        entry.outcome,
        entry.address,
        dict(sorted(entry.details.items())),
    ]
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(before + text.encode()).digest()


def verify(start: Checkpoint, entries: Iterable[SealedEntry]) -> Defect | None:
    """The first defect of a trail that begins behind ``start``; None if there is none."""
    position, before = start.position, start.hash
    for entry in entries:
        position += 1
        if entry.position != position:
            return Defect(position, f"missing: the next row is {entry.position}")
        before = next_hash(before, entry)
        if entry.hash != before:
            return Defect(position, "changed: its hash does not belong to it and the row before")
    return None


@frozen
class SealedEntry:
    """A row of the trail; see :class:`bos_postgres.audit.AuditEntry`."""

    position: int
    """Counted from 1, without gaps."""
    occurred_at: datetime
    actor: str
    actor_kind: str
    action: str
    target: str
    outcome: str
    address: str
    details: Mapping[str, str]
    hash: bytes


@frozen
class Checkpoint:
    """The row behind which the trail begins: position 0 and no hash if nothing was dropped yet."""

    position: int
    hash: bytes
