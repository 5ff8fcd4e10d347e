"""Rotation of signing keys: when they come and go; pure.

A key is published before it signs, so that caches of the key set have it in time, and stays
published after its successor has taken over, until the last token that it signed has expired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class KeyDates:
    """A key, as far as its life is concerned."""

    key_id: str
    active_from: datetime


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    """Lifetimes of signing keys."""

    life: timedelta
    """A key signs this long."""
    ahead: timedelta
    """A key is published this long before it signs."""
    after: timedelta
    """A key is published this long after it last signed: life of a token, and clocks."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotation steps that are due."""

    new_key_from: datetime | None
    """A new key is to be made, to sign from then on; None if not."""
    dead: tuple[str, ...]
    """Keys whose tokens have all expired."""


def due(keys: Sequence[KeyDates], now: datetime, policy: RotationPolicy) -> Rotation:
    """What is due at ``now``."""
    if not keys:
        return Rotation(now, ())
    ordered = sorted(keys, key=lambda key: key.active_from)
    newest = ordered[-1]
    ends = newest.active_from + policy.life
    new_key_from = max(ends, now + policy.ahead) if ends - policy.ahead <= now else None
    dead = tuple(
        key.key_id
        for key, successor in pairwise(ordered)
        if successor.active_from + policy.after <= now
    )
    return Rotation(new_key_from, dead)


def signing_key(keys: Sequence[KeyDates], now: datetime) -> KeyDates:
    """The key that signs at ``now``: the newest active one, or the first of all before that."""
    ordered = sorted(keys, key=lambda key: key.active_from)
    active = [key for key in ordered if key.active_from <= now]
    return active[-1] if active else ordered[0]
