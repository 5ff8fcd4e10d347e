"""ASGI applications served inside the process: for scripted endpoints, demos and tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.types import ASGIApp

_SHUTDOWN_TIMEOUT_S = 2.0


@contextlib.asynccontextmanager
async def asgi_server(
    application: ASGIApp, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[str]:
    """Serve ``application`` over HTTP until the context exits; yields its base URL.

    Raises:
        OSError: the address cannot be bound.
    """
    listener = listen((host, port))
    bound, taken = listener.getsockname()[:2]
    server = EmbeddedServer(application)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="asgi server")
    try:
        await server.wait_until_ready(serving)
        yield f"http://{bound}:{taken}"
    finally:
        server.stop()
        await serving


class EmbeddedServer(uvicorn.Server):
    """uvicorn as a guest: it takes no signals of the process and needs no polling to stop."""

    def __init__(self, application: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level=None,
                access_log=False,
                server_header=False,
                date_header=False,
            )
        )
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process."""
        yield

    async def main_loop(self) -> None:
        """Serve until :meth:`stop`."""
        self._ready.set()
        await self._stopping.wait()

    def stop(self) -> None:
        """End the server; its task ends when the connections are closed."""
        self._stopping.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close everything as soon as the replies in flight allow it, where uvicorn would poll."""
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_SHUTDOWN_TIMEOUT_S)

    async def wait_until_ready(self, serving: asyncio.Task[None]) -> None:
        """Return when connections are accepted; raise what ended the server if it did not start."""
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({ready, serving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if serving.done():
            await serving


def listen(address: tuple[str, int]) -> socket.socket:
    """Bind a TCP address; port 0 takes a free one."""
    # asyncio switches Nagle's algorithm off only for sockets that name their protocol; with it
    # on, every reply of several writes waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def endless(media_type: str) -> StreamingResponse:
    """A response that never ends."""

    async def body() -> AsyncIterator[bytes]:
        while True:
            yield b"data: x\n" * 8192
            await asyncio.sleep(0)

    return StreamingResponse(body(), media_type=media_type)


def silent(media_type: str) -> StreamingResponse:
    """A response that begins and says no more."""

    async def body() -> AsyncIterator[bytes]:
        yield b" "
        await asyncio.Event().wait()

    return StreamingResponse(body(), media_type=media_type)
