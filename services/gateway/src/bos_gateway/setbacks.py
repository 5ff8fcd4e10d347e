"""Runs that went wrong in this process: which to leave to others for a while, and which to end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

# Others may have ended a run that could not be read here.
_FORGOTTEN_AFTER_S: Final = 3600.0


class Setbacks:
    """What did not go well here of late. Times are in seconds.

    Args:
        hold_off_s: How long to leave a run alone that broke here.
        run_timeout_s: How long a run may defy being taken up before it has to end.
    """

    def __init__(self, hold_off_s: float, run_timeout_s: float) -> None:
        self._hold_off_s = hold_off_s
        self._run_timeout_s = run_timeout_s
        self._held_off: dict[UUID, float] = {}
        self._unreadable_since: dict[UUID, float] = {}

    def held_off(self) -> Collection[UUID]:
        """Runs that another replica may have better luck with."""
        now = time.monotonic()
        self._held_off = {run: until for run, until in self._held_off.items() if until > now}
        forgotten = now - self._run_timeout_s - _FORGOTTEN_AFTER_S
        self._unreadable_since = {
            run: since for run, since in self._unreadable_since.items() if since > forgotten
        }
        return self._held_off

    def broke(self, run_id: UUID) -> None:
        """The run went wrong here."""
        self._held_off[run_id] = time.monotonic() + self._hold_off_s

    def not_taken_up(self, run_id: UUID) -> bool:
        """The run could not be taken up; whether that has now lasted for a run's whole time."""
        now = time.monotonic()
        since = self._unreadable_since.setdefault(run_id, now)
        return now - since >= self._run_timeout_s

    def settled(self, run_id: UUID) -> None:
        """The run was taken up, or ended."""
        self._unreadable_since.pop(run_id, None)
