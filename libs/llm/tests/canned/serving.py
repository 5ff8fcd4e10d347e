"""A model endpoint made of one handler, on a free port of this machine."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def endpoint_of(chat: Handler, *, health: Handler | None = None) -> AsyncIterator[str]:
    """Its base URL; ``chat`` answers calls, ``health`` what llama.cpp's server is asked."""
    application = web.Application()
    application.router.add_post("/v1/chat/completions", chat)
    if health is not None:
        application.router.add_get("/health", health)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
