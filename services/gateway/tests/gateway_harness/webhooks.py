"""Calls of WebhookService, as tests make them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from bos.gateway import v1 as gateway
from bos_errors import BosError, from_rpc_error
from gateway_harness.harness import Client

DEADLINE_S = 60
PENDING = gateway.WEBHOOK_DELIVERY_STATE_PENDING
GIVEN_UP = gateway.WEBHOOK_DELIVERY_STATE_GIVEN_UP


@contextmanager
def refused(error: type[BosError], field: str = "") -> Iterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        yield
    found = from_rpc_error(raised.value)
    assert isinstance(found, error), found
    assert field in str(found.violations if field else "")


def hooks(client: Client) -> Any:
    return gateway.WebhookServiceStub(client.channel)


async def add(client: Client, url: str, *events: Any) -> Any:
    request = gateway.CreateWebhookRequest(url=url, events=events)
    return await hooks(client).CreateWebhook(request, timeout=DEADLINE_S)


async def look_up(client: Client, webhook_id: str) -> Any:
    request = gateway.GetWebhookRequest(webhook_id=webhook_id)
    return (await hooks(client).GetWebhook(request, timeout=DEADLINE_S)).webhook


async def deliveries(client: Client, webhook_id: str, **page: Any) -> Any:
    request = gateway.ListWebhookDeliveriesRequest(webhook_id=webhook_id, **page)
    return await hooks(client).ListWebhookDeliveries(request, timeout=DEADLINE_S)


async def until_state(client: Client, webhook_id: str, state: int) -> list[Any]:
    """All deliveries of a webhook, once all are in that state and there is one."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await deliveries(client, webhook_id)).deliveries
            if found and all(each.state == state for each in found):
                return list(found)
            await asyncio.sleep(0.01)


async def ended(client: Client, webhook_id: str, count: int) -> list[Any]:
    """All deliveries of a webhook, once there are so many and none is pending."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            found = (await deliveries(client, webhook_id)).deliveries
            if len(found) == count and all(each.state != PENDING for each in found):
                return list(found)
            await asyncio.sleep(0.01)


async def try_out(client: Client, webhook_id: str) -> Any:
    request = gateway.TestWebhookRequest(webhook_id=webhook_id)
    return (await hooks(client).TestWebhook(request, timeout=DEADLINE_S)).delivery
