"""Password hashes: argon2id in threads of their own, as many at once as the settings allow.

A hash costs 64 MiB and much time on purpose. Threads are few and the queue is bounded, so that a
flood of logins is refused instead of taking the process down.
"""

from __future__ import annotations

import asyncio
import time
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Self, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from bos_errors import ResourceExhausted
from bos_identity.metrics import IdentityMetrics
from bos_identity.settings import IdentitySettings

R = TypeVar("R")

_RETRY_S = 1.0


class Passwords:
    """Makes and verifies hashes; an async context manager.

    Args:
        settings: Cost of a hash, threads, queue.
        metrics: Where durations go.
    """

    def __init__(self, settings: IdentitySettings, metrics: IdentityMetrics) -> None:
        self._hasher = PasswordHasher(
            time_cost=settings.argon2_time_cost,
            memory_cost=settings.argon2_memory_kib,
            parallelism=1,
        )
        self._metrics = metrics
        self._threads = ThreadPoolExecutor(settings.hash_threads, thread_name_prefix="argon2")
        self._places = BoundedSemaphore(settings.hash_queue)
        self._unmatched = ""

    async def __aenter__(self) -> Self:
        # What is verified for users that do not exist: it must cost what a real one costs.
        self._unmatched = await self.hash("the password of no user")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def hash(self, password: str) -> str:
        """The hash of a new password, with a salt of its own.

        Raises:
            ResourceExhausted: Too many hashes are under way.
        """
        return await self._in_thread(lambda: self._hasher.hash(_normal(password)))

    async def matches(self, stored: str | None, password: str) -> bool:
        """Whether ``password`` is the one that ``stored`` was made of.

        Takes as long for None, which no password matches, as for a hash.

        Raises:
            ResourceExhausted: Too many hashes are under way.
        """

        def verify() -> bool:
            try:
                return self._hasher.verify(stored or self._unmatched, _normal(password))
            except (VerificationError, InvalidHashError):
                return False

        return await self._in_thread(verify) and stored is not None

    def is_outdated(self, stored: str) -> bool:
        """Whether the hash was made at another cost than new ones are."""
        return self._hasher.check_needs_rehash(stored)

    async def _in_thread(self, work: Callable[[], R]) -> R:
        if not self._places.acquire(blocking=False):
            raise ResourceExhausted(
                "Too many people are signing in at the moment; try again shortly.",
                reason="TOO_MANY_LOGINS",
                retry_after_s=_RETRY_S,
            )
        started = time.perf_counter()
        future = self._threads.submit(work)
        # With the thread, not with the caller: a caller who gives up frees no processor.
        future.add_done_callback(lambda _: self._places.release())
        try:
            return await asyncio.wrap_future(future)
        finally:
            self._metrics.hash_seconds.observe(time.perf_counter() - started)


def _normal(password: str) -> str:
    """One form for what keyboards enter in several, such as letters with accents."""
    return unicodedata.normalize("NFKC", password)
