"""Client of a user's webhooks: addresses that events of the user's runs are posted to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.gateway.v1 import (
    CreateWebhookRequest,
    DeleteWebhookRequest,
    GetWebhookRequest,
    ListWebhookDeliveriesRequest,
    ListWebhooksRequest,
    TestWebhookRequest,
    WebhookServiceStub,
)
from bos_client.calling import ServiceClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.gateway.v1 import (
        CreateWebhookResponse,
        ListWebhookDeliveriesResponse,
        Webhook,
        WebhookDelivery,
        WebhookEvent,
        WebhookServiceAsyncStub,
    )

_TEST_S = 120.0


class WebhookClient(ServiceClient):
    """A client of the gateway for the caller's webhooks; see :class:`ServiceClient`."""

    async def add(self, url: str, events: Sequence[WebhookEvent] = ()) -> CreateWebhookResponse:
        """Add a webhook; the answer holds its secret, which is not shown again.

        Args:
            url: Where events are posted.
            events: Which; none means the end of a run and an approval that waits.

        Raises:
            InvalidArgument: the address may not be called.
            ResourceExhausted: the caller has as many webhooks as may be.
        """
        request = CreateWebhookRequest(url=url, events=events)
        return await self._unary(self._stub.CreateWebhook, request)

    async def webhooks(self) -> Sequence[Webhook]:
        """All webhooks of the caller, oldest first."""
        return (await self._unary(self._stub.ListWebhooks, ListWebhooksRequest())).webhooks

    async def webhook(self, webhook_id: str) -> Webhook:
        """One of the caller's webhooks.

        Raises:
            NotFound: there is none with this id.
        """
        request = GetWebhookRequest(webhook_id=webhook_id)
        return (await self._unary(self._stub.GetWebhook, request)).webhook

    async def delete(self, webhook_id: str) -> None:
        """Delete a webhook; what was not delivered yet is dropped.

        Raises:
            NotFound: there is none with this id.
        """
        await self._unary(self._stub.DeleteWebhook, DeleteWebhookRequest(webhook_id=webhook_id))

    async def test(self, webhook_id: str) -> WebhookDelivery:
        """Have a test event posted once; returns what came of it.

        Raises:
            NotFound: there is none with this id.
        """
        request = TestWebhookRequest(webhook_id=webhook_id)
        return (await self._unary(self._stub.TestWebhook, request, _TEST_S)).delivery

    async def deliveries(
        self, webhook_id: str, page_size: int = 0, page_token: str = ""
    ) -> ListWebhookDeliveriesResponse:
        """A page of the latest deliveries, newest first.

        Raises:
            NotFound: there is none with this id.
        """
        request = ListWebhookDeliveriesRequest(
            webhook_id=webhook_id, page_size=page_size, page_token=page_token
        )
        return await self._unary(self._stub.ListWebhookDeliveries, request)

    @property
    def _stub(self) -> WebhookServiceAsyncStub:
        return WebhookServiceStub(self._channel)
