"""An event loop whose end waits for nobody, not even for a name server that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def run_bounded(work: Coroutine[Any, Any, T]) -> T:
    """As ``asyncio.run``, which would wait until the last look-up of a name has ended."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)


class _Loop(asyncio.SelectorEventLoop):
    """Looks names up in daemon threads: a look-up cannot be cancelled, only be left behind."""

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> Any:
        """As the loop's own."""
        found: asyncio.Future[Any] = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if found.done():
                return
            if error is None:
                found.set_result(result)
            else:
                found.set_exception(error)

        def look_up() -> None:
            result, failure = None, None
            try:
                result = socket.getaddrinfo(*args, **kwargs)
            except OSError as error:
                failure = error
            except UnicodeError:
                failure = socket.gaierror(socket.EAI_NONAME, "not the name of a host")
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.call_soon_threadsafe(partial(settle, result, failure))

        threading.Thread(target=look_up, name="name look-up", daemon=True).start()
        return await found
