"""LISTEN as a stream that survives the loss of its connection."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from bos_errors import ConfigurationError, Unavailable
from bos_postgres.connections import connect, connection_errors
from bos_postgres.dsn import check_identifier

_MAX_WAITING: Final = 1024


class Notices:
    """Notifications of one channel, read with ``async for`` inside ``async with``.

    Each item is a payload, or None where notifications may have been missed: after every (new)
    LISTEN, after an overflow, while the server is away, and every ``poll_s`` of silence. On None
    the reader looks into its tables. So a reader that handles None sees every change.

    Args:
        dsn: PostgreSQL URL; a transaction pooler would break it.
        channel: Lower-case channel name.
        poll_s: Longest silence between two items.
        application_name: Shown in ``pg_stat_activity``.
    """

    def __init__(
        self, dsn: str, channel: str, *, poll_s: float = 1.0, application_name: str = "bos-notices"
    ) -> None:
        self._dsn = dsn
        self._channel = check_identifier(channel, "The channel name")
        self._poll_s = poll_s
        self._application_name = application_name
        self._payloads: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING)
        self._missed = asyncio.Event()
        self._session: AsyncExitStack | None = None
        self._lost = False

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            Unavailable: The server cannot be reached.
        """
        await self._listen()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str | None:
        """The next payload, or None: see the class."""
        if self._lost:
            await self._close()
        if self._session is None:
            try:
                await self._listen()
            except (Unavailable, ConfigurationError):
                # Also a password that is being changed, which passes.
                await asyncio.sleep(self._poll_s)
                return None
        if self._missed.is_set():
            self._missed.clear()
            while not self._payloads.empty():
                self._payloads.get_nowait()
            return None
        try:
            async with asyncio.timeout(self._poll_s):
                return await self._payloads.get()
        except TimeoutError:
            return None

    async def _listen(self) -> None:
        async with AsyncExitStack() as stack:
            self._lost = False
            connection = await stack.enter_async_context(
                connect(
                    self._dsn, application_name=self._application_name, on_lost=self._session_ended
                )
            )
            with connection_errors(self._dsn):
                await connection.add_listener(self._channel, self._received)
            self._missed.set()
            self._session = stack.pop_all()

    async def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.aclose()

    def _session_ended(self) -> None:
        self._lost = True

    def _received(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        try:
            self._payloads.put_nowait(str(payload))
        except asyncio.QueueFull:
            self._missed.set()
