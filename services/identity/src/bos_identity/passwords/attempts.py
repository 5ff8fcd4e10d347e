"""Password attempts: verified, counted and slowed down."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bos_errors import BosError
from bos_identity.metrics import IdentityMetrics
from bos_identity.passwords.hashes import Passwords
from bos_identity.passwords.throttle import Subject, Throttle

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempts:
    """Compares passwords with hashes, no faster than the throttle allows."""

    passwords: Passwords
    throttle: Throttle
    metrics: IdentityMetrics

    async def matches(self, stored: str | None, password: str, subjects: Sequence[Subject]) -> bool:
        """Whether ``password`` is the one that ``stored`` was made of.

        Raises:
            ResourceExhausted: One of the subjects has to wait, or too many hashes are under way.
        """
        try:
            await self._begin(subjects)
        except BosError:
            self.metrics.logins.labels("throttled").inc()
            raise
        settle = self.throttle.undone
        try:
            matches = await self.passwords.matches(stored, password)
            settle = self.throttle.succeeded if matches else self.throttle.failed
        finally:
            # Also when the client has gone: what is not known to have failed is no failure.
            await _to_the_end(settle(subjects))
        self.metrics.logins.labels("succeeded" if matches else "refused").inc()
        return matches

    async def _begin(self, subjects: Sequence[Subject]) -> None:
        """Count the attempt, and take it back if the client goes while it is counted."""
        task = asyncio.ensure_future(self.throttle.begin(subjects))
        cancelled = await _ended(task)
        if cancelled is not None:
            if not task.cancelled() and task.exception() is None:
                await _to_the_end(self.throttle.undone(subjects))
            raise cancelled
        task.result()


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do the work, however often the call is cancelled meanwhile; then be cancelled."""
    task = asyncio.ensure_future(work)
    cancelled = await _ended(task)
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved, as no caller is there to hear it
        raise cancelled
    return task.result()


async def _ended(task: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait for the task, however often the call is cancelled; the last time of it, if it was."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
