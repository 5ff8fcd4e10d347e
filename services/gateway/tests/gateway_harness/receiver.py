"""A receiver of webhooks that answers as the test says, and calls of WebhookService."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bos.gateway import v1 as gateway
from bos_errors import BosError
from gateway_harness.answering import refusal
from gateway_harness.harness import Client

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOOPBACK = ("127.0.0.0/8",)
KEYS = {"secrets_keys": "k1=" + "A" * 43 + "="}
"""Settings of a gateway that can keep secrets of webhooks."""


@dataclass(frozen=True)
class Received:
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


# Calls of WebhookService

PENDING = gateway.WEBHOOK_DELIVERY_STATE_PENDING
GIVEN_UP = gateway.WEBHOOK_DELIVERY_STATE_GIVEN_UP


async def refused(call: Any, error: type[BosError], field: str = "") -> None:
    found = await refusal(call)
    assert isinstance(found, error), found
    assert field in str(found.violations if field else "")


async def add(client: Client, url: str, *events: Any) -> Any:
    return await client.call(gateway.CreateWebhookRequest(url=url, events=events))


async def look_up(client: Client, webhook_id: str) -> Any:
    return (await client.call(gateway.GetWebhookRequest(webhook_id=webhook_id))).webhook


async def deliveries(client: Client, webhook_id: str, **page: Any) -> Any:
    return await client.call(gateway.ListWebhookDeliveriesRequest(webhook_id=webhook_id, **page))


async def ended(client: Client, webhook_id: str, count: int, *states: int) -> list[Any]:
    """All deliveries of a webhook, once there are so many, and all are in one of these states.

    Without any none is pending.
    """
    async with asyncio.timeout(60):
        while True:
            found = list((await deliveries(client, webhook_id)).deliveries)
            over = [each for each in found if each.state in states or not states]
            if len(found) == len(over) == count and all(e.state != PENDING for e in over):
                return found
            await asyncio.sleep(0.01)


async def try_out(client: Client, webhook_id: str) -> Any:
    return (await client.call(gateway.TestWebhookRequest(webhook_id=webhook_id))).delivery
