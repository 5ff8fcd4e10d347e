"""WebhookService: translates between gRPC and the webhooks of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define

from bos.gateway import v1 as gateway
from bos_chassis.auth.callers import current_principal
from bos_chassis.auth.roles import require_role
from bos_chassis.names import USER
from bos_gateway.webhooks.deliverer import Deliverer
from bos_gateway.webhooks.registered import Webhooks, key_of
from bos_postgres.audit import By

SERVICE_NAME = "bos.gateway.v1.WebhookService"


@define(eq=False)
class WebhookServicer(gateway.WebhookServiceServicer):
    """Implements ``bos.gateway.v1.WebhookService``."""

    _webhooks: Webhooks
    _deliverer: Deliverer
    _caller: Callable[[], str]
    """The caller's user id; refuses callers that are no users."""

    async def CreateWebhook(
        self, request: gateway.CreateWebhookRequest, context: Any
    ) -> gateway.CreateWebhookResponse:
        """Add an address."""
        user_id = self._caller()
        require_role(current_principal(), USER)
        webhook, secret = await self._webhooks.create(
            user_id, request.url, request.events, By.of(current_principal())
        )
        return gateway.CreateWebhookResponse(webhook=webhook, secret=secret)

    async def ListWebhooks(
        self, request: gateway.ListWebhooksRequest, context: Any
    ) -> gateway.ListWebhooksResponse:
        """All of the caller's."""
        return gateway.ListWebhooksResponse(webhooks=await self._webhooks.all(self._caller()))

    async def GetWebhook(
        self, request: gateway.GetWebhookRequest, context: Any
    ) -> gateway.GetWebhookResponse:
        """One of the caller's."""
        webhook = await self._webhooks.get(request.webhook_id, self._caller())
        return gateway.GetWebhookResponse(webhook=webhook)

    async def DeleteWebhook(
        self, request: gateway.DeleteWebhookRequest, context: Any
    ) -> gateway.DeleteWebhookResponse:
        """Delete one of the caller's."""
        by = By.of(current_principal())
        await self._webhooks.delete(request.webhook_id, self._caller(), by)
        return gateway.DeleteWebhookResponse()

    async def TestWebhook(
        self, request: gateway.TestWebhookRequest, context: Any
    ) -> gateway.TestWebhookResponse:
        """Post a test event to one of the caller's."""
        user_id = self._caller()
        require_role(current_principal(), USER)
        delivery_id = await self._deliverer.test(key_of(request.webhook_id), user_id)
        delivery = await self._webhooks.delivery(delivery_id, user_id)
        return gateway.TestWebhookResponse(delivery=delivery)

    async def ListWebhookDeliveries(
        self, request: gateway.ListWebhookDeliveriesRequest, context: Any
    ) -> gateway.ListWebhookDeliveriesResponse:
        """The latest deliveries to one of the caller's."""
        deliveries, token = await self._webhooks.deliveries(request, self._caller())
        return gateway.ListWebhookDeliveriesResponse(deliveries=deliveries, next_page_token=token)
