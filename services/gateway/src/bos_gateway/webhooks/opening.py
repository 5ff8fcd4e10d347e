"""Builds what webhooks need, and runs the task that posts events."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from bos_gateway.webhooks.deliverer import RENDERING_S, Deliverer
from bos_gateway.webhooks.outbox import Outbox
from bos_gateway.webhooks.registered import Webhooks
from bos_gateway.webhooks.sender import Sender
from bos_http import HttpClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from bos_chassis.telemetry import Telemetry
    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.run_log.reader import Runs
    from bos_gateway.settings import GatewaySettings

    Pool = asyncpg.Pool[asyncpg.Record]

# A run and its results may take tens of megabytes until they are a bounded event.
_RENDERED_AT_ONCE: Final = 2
_MARGIN_S: Final = 5.0


@asynccontextmanager
async def running_webhooks(
    settings: GatewaySettings,
    pool: Pool,
    readers: Pool,
    runs: Runs,
    metrics: GatewayMetrics,
    telemetry: Telemetry,
) -> AsyncIterator[tuple[Webhooks, Deliverer]]:
    """Post events while the block runs; without webhooks of the operator's leave the outbox alone.

    Raises:
        ConfigurationError: the certificate authorities cannot be read.
    """
    ring, limit = settings.secrets_key_ring(), settings.max_webhooks_per_user
    lease_s = settings.webhook_timeout_s + RENDERING_S + _MARGIN_S
    async with HttpClient(settings.webhook_policy(), telemetry) as http:
        webhooks = Webhooks(pool, readers, ring, http, limit)
        outbox = Outbox(pool, lease_s, settings.webhook_give_up_s)
        sender = Sender(
            runs,
            readers,
            ring,
            http,
            asyncio.Semaphore(_RENDERED_AT_ONCE),
            telemetry,
            settings.webhook_max_body_bytes,
            settings.webhook_timeout_s,
        )
        deliverer = Deliverer(outbox, sender, settings, metrics, telemetry)
        if not limit:
            yield webhooks, deliverer
            return
        async with deliverer.running():
            yield webhooks, deliverer
