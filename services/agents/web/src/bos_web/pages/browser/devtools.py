"""Chromium's DevTools protocol over a socket that no other process can reach."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_END = b"\0"


class BrowserGone(Exception):
    """The browser exited, or sent an invalid message."""


class CallFailed(Exception):
    """The browser refused a call."""


class DevTools:
    """Calls and events of one browser.

    Args:
        reader: With ``MAX_MESSAGE_BYTES`` as its limit.
        writer: To the same browser.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._gone = False
        self.on_event: Callable[[str, dict[str, Any], str], None] = _ignore
        """Called with name, parameters and session of each event."""
        self.on_gone: Callable[[], None] = lambda: None

    async def listen(self) -> None:
        """Pass messages on until the browser ends."""
        try:
            while True:
                self._take(json.loads((await self._reader.readuntil(_END))[:-1]))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError, ValueError):
            pass
        finally:
            self._gone = True
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(BrowserGone())
            self.on_gone()

    async def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Call a method and return its result.

        Raises:
            BrowserGone: There is no browser any more.
            CallFailed: The browser refuses.
        """
        if self._gone:
            raise BrowserGone
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(json.dumps(message).encode() + _END)
            await self._writer.drain()
            return await answer
        except OSError:
            raise BrowserGone from None
        finally:
            del self._waiting[number]
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # seen, also where the caller left before

    def _take(self, message: Any) -> None:
        if not isinstance(message, dict):
            raise ValueError("a message is a map")
        number = message.get("id")
        if number is None:
            self.on_event(
                str(message.get("method")),
                message.get("params") or {},
                str(message.get("sessionId", "")),
            )
            return
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        if "error" in message:
            answer.set_exception(CallFailed(str(message["error"])[:200]))
        else:
            answer.set_result(message.get("result") or {})


def _ignore(_name: str, _parameters: dict[str, Any], _session: str) -> None:
    pass
