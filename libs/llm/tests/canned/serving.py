"""HTTP servers made of handlers, on a free port of this machine."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(*routes: web.RouteDef, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server of these routes."""
    application = web.Application()
    application.add_routes(routes)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def endpoint_of(chat: Handler, *more: web.RouteDef) -> AsyncIterator[str]:
    """Base URL of a model endpoint whose calls ``chat`` answers."""
    async with served(web.post("/v1/chat/completions", chat), *more) as url:
        yield f"{url}/v1"
