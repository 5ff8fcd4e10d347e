"""A concurrency limit whose places are shared fairly by users, who wait a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from bos_chassis.auth.callers import current_principal
from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait


class FairLimiter:
    """Limits concurrent work; callers without a credential count as one user.

    Args:
        limit: Most at once; one user alone has all but one.
        queue_timeout_s: Longest wait for a free place.
        busy: Makes the error of a caller for whom no place became free.
    """

    def __init__(self, limit: int, queue_timeout_s: float, busy: Callable[[], Exception]) -> None:
        self._places = FairPlaces(limit)
        self._queue_timeout_s = queue_timeout_s
        self._busy = busy

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place for the user behind the call in progress.

        Raises:
            Exception: none became free in time; the error of ``busy``.
        """
        principal = current_principal()
        caller = principal.user_id if principal else ""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._queue_timeout_s):
                    await stack.enter_async_context(self._places.place(caller))
            except (TimeoutError, NoPlaceToWait):
                raise self._busy() from None
            yield
