"""Calls of WebhookService, as tests make them."""

import asyncio
from typing import Any

from bos.gateway import v1 as gateway
from bos_errors import BosError
from gateway_harness.answering import refusal
from gateway_harness.harness import Client

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
