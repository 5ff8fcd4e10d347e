"""A webhook of a user, at an address where no server answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bos.gateway.v1 import CreateWebhookRequest, WebhookServiceStub

if TYPE_CHECKING:
    import grpc

_NOWHERE: Final = "http://127.0.0.1:9"
NEW_WEBHOOK: Final = f"{_NOWHERE}/everybody"
WEBHOOK_SETTINGS: Final[dict[str, Any]] = {
    "secrets_keys": "one=" + "A" * 43 + "=",
    "webhook_internal_origins": {_NOWHERE: ("127.0.0.0/8",)},
    # More than all callers of a table add.
    "max_webhooks_per_user": 100,
}
"""Of the gateway."""


async def give_webhook(channel: grpc.aio.Channel, token: str, path: str) -> str:
    """The id of a new one."""
    made = await WebhookServiceStub(channel).CreateWebhook(
        CreateWebhookRequest(url=f"{_NOWHERE}/{path}"),
        metadata=(("authorization", f"Bearer {token}"),),
    )
    return made.webhook.webhook_id
