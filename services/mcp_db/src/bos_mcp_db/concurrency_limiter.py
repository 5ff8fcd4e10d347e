"""Fair concurrency limit of a database: the users share the connections to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from bos_chassis.auth.callers import current_principal
from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait
from bos_mcp_db.failures import DatabaseBusy


class ConcurrencyLimiter:
    """Limits the queries of a database to its connections, fairly by user.

    Callers without a credential count as one user.
    """

    def __init__(self, limit: int, queue_timeout_s: float) -> None:
        self._places = FairPlaces(limit)
        self._queue_timeout_s = queue_timeout_s

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place for the user behind the call in progress.

        Raises:
            DatabaseBusy: none became free in time.
        """
        principal = current_principal()
        caller = principal.user_id if principal else ""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._queue_timeout_s):
                    await stack.enter_async_context(self._places.place(caller))
            except (TimeoutError, NoPlaceToWait):
                raise DatabaseBusy from None
            yield
