"""Fair limit of concurrent programs in a tier, shared by its users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bos_chassis.auth.callers import current_principal
from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait
from bos_errors import ResourceExhausted


class ConcurrencyLimiter:
    """Limits concurrent programs of one tier; callers without a credential count as one user.

    Args:
        programs: Most programs at once; one user alone has all but one.
        queue_timeout_s: Longest wait for a free place.
    """

    def __init__(self, programs: int, queue_timeout_s: float) -> None:
        self._places = FairPlaces(programs)
        self._queue_timeout_s = queue_timeout_s

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place for the user behind the call in progress.

        Raises:
            ResourceExhausted: no place became free in time (``SANDBOX_BUSY``).
        """
        principal = current_principal()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._queue_timeout_s):
                    await stack.enter_async_context(
                        self._places.place(principal.user_id if principal else "")
                    )
            except (TimeoutError, NoPlaceToWait):
                raise ResourceExhausted(
                    "All sandbox workers are busy.", reason="SANDBOX_BUSY", retry_after_s=1
                ) from None
            yield
