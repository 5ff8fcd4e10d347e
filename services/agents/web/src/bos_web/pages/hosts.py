"""Requests to one host: how many at once, and how long apart; over all steps of the process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_MAX_HOSTS = 2_048


class TooSlow(Exception):
    """The host's turn comes later than there is time."""


@dataclass(slots=True)
class _Host:
    places: asyncio.Semaphore
    next_at: float = 0.0
    users: int = 0
    """Requests that wait or run; a host in use is not forgotten."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class HostTurns:
    """Spaces requests to each host out.

    Args:
        interval_s: Shortest time between the starts of two requests.
        at_once: Requests at the same time.
    """

    def __init__(self, *, interval_s: float, at_once: int) -> None:
        self._interval_s = interval_s
        self._at_once = at_once
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    @asynccontextmanager
    async def turn(self, host: str, *, delay_s: float, within_s: float) -> AsyncIterator[None]:
        """Wait for a turn and hold it for the block.

        Args:
            host: Whose turn; name and port.
            delay_s: Time between two requests that the host asks for.
            within_s: Longest wait.

        Raises:
            TooSlow: The turn does not come within that time.
        """
        found = self._host(host)
        found.users += 1
        try:
            await self._wait(found, max(delay_s, self._interval_s), within_s)
            try:
                yield
            finally:
                found.places.release()
        finally:
            found.users -= 1

    async def _wait(self, host: _Host, interval_s: float, within_s: float) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + within_s
        try:
            async with asyncio.timeout(within_s):
                await host.places.acquire()
        except TimeoutError:
            raise TooSlow from None
        starts = max(loop.time(), host.next_at)
        if starts > ends:
            host.places.release()
            raise TooSlow
        host.next_at = starts + interval_s
        try:
            await asyncio.sleep(starts - loop.time())
        except BaseException:
            host.places.release()
            raise

    def _host(self, name: str) -> _Host:
        found = self._hosts.get(name)
        if found is None:
            found = self._hosts[name] = _Host(asyncio.Semaphore(self._at_once))
        self._hosts.move_to_end(name)
        if len(self._hosts) > _MAX_HOSTS:
            idle = next((each for each, host in self._hosts.items() if not host.users), None)
            if idle is not None:
                del self._hosts[idle]
        return found
