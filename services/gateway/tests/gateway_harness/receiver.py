"""A receiver of webhooks that answers as the test says and keeps what it was sent."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK = ("127.0.0.0/8",)
KEYS = {"secrets_keys": "k1=" + "A" * 43 + "="}
"""Settings of a gateway that can keep secrets of webhooks."""


@dataclass(frozen=True)
class Received:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def delivery_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.body)
        return event

    @property
    def type(self) -> str:
        return str(self.event["type"])


async def accept(_: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


def answer(status: int, **headers: str) -> Answer:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers, text="a body that is dropped")

    return respond


@dataclass
class Receiver:
    """Where events are posted."""

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    """By path; others accept."""
    received: list[Received] = field(default_factory=list)
    accepted: list[Received] = field(default_factory=list)
    """Those that were answered with 2xx."""
    _runner: web.AppRunner | None = None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str = "/hook") -> str:
        return self.origin + path

    def settings(self, **overrides: Any) -> dict[str, Any]:
        """Of a gateway that may post here, soon and again."""
        return {
            **KEYS,
            "webhook_internal_origins": {self.origin: LOOPBACK},
            "webhook_backoff_s": 0.05,
            "webhook_backoff_cap_s": 0.2,
            "webhook_poll_s": 0.05,
            **overrides,
        }

    async def start(self) -> None:
        """Listen, on the same port as before."""
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections from now on."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        got = Received(request.path, dict(request.headers), await request.read())
        self.received.append(got)
        response = await self.answers.get(request.path, accept)(request)
        if 200 <= response.status < 300:
            self.accepted.append(got)
        return response


async def never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def huge(request: web.Request) -> web.StreamResponse:
    """Accepts, and then never stops talking."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"x" * 65536)


@asynccontextmanager
async def open_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    try:
        yield receiver
    finally:
        await receiver.stop()
