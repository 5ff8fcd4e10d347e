"""Event loop that exits without waiting for pending DNS look-ups."""

from __future__ import annotations

import asyncio
import concurrent.futures
import socket
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_bounded(work: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``, without waiting for pending DNS look-ups."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


class _Loop(asyncio.SelectorEventLoop):
    """Looks names up in daemon threads: a look-up cannot be cancelled, only be left behind."""

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        """As the loop's own."""
        found: concurrent.futures.Future[Any] = concurrent.futures.Future()
        found.set_running_or_notify_cancel()  # it takes its answer also without a caller

        def look_up() -> None:
            try:
                found.set_result(socket.getaddrinfo(*args, **kwargs))
            except UnicodeError:
                found.set_exception(socket.gaierror(socket.EAI_NONAME, "not the name of a host"))
            except OSError as error:
                found.set_exception(error)

        threading.Thread(target=look_up, name="name look-up", daemon=True).start()
        return await asyncio.wrap_future(found)
