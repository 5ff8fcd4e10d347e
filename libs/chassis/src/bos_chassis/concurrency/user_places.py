"""Counted places that no user may have all of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class Full(Enum):
    """Why there is no place."""

    USER = "user"
    """The user has as many as one may have."""
    ALL = "all"
    """All are taken."""


class UserPlaces:
    """Counts what is under way, by user, against a bound for each and one for all.

    Nothing waits: a service that gets no place refuses its caller with an error of its own::

        if full := places.full_for(user_id):
            raise ResourceExhausted(..., reason="UPLOAD_LIMIT", retry_after_s=1.0)
        with places.taken(user_id):
            ...

    Args:
        total: Places of all users together.
        per_user: Places of one user; None: no such bound.
    """

    def __init__(self, total: int, per_user: int | None = None) -> None:
        self._total = total
        self._per_user = per_user
        self._of_users: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """Places taken."""
        return self._of_users.total()

    def full_for(self, user_id: str, *, bounded: bool = True) -> Full | None:
        """Why a user has to be refused; None if there is a place.

        Args:
            user_id: The user.
            bounded: Whether the bound for one user holds for this one.
        """
        most = self._per_user if bounded else None
        # Not by [], which would remember everybody who ever asked.
        if most is not None and self._of_users.get(user_id, 0) >= most:
            return Full.USER
        return Full.ALL if self.open >= self._total else None

    @contextmanager
    def taken(self, user_id: str) -> Iterator[None]:
        """One place more of a user, until the block ends."""
        self._of_users[user_id] += 1
        try:
            yield
        finally:
            self._of_users[user_id] -= 1
            if not self._of_users[user_id]:
                del self._of_users[user_id]
