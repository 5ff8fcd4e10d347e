"""Delivery of webhook events from the outbox: bounded, fair to receivers, with back-off."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from uuid import UUID

from attrs import define, field

from bos.gateway import v1 as gateway
from bos_chassis.backoff import Backoff
from bos_chassis.concurrency.periodic_tasks import periodic_tasks
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, NotFound, ResourceExhausted
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.settings import GatewaySettings
from bos_gateway.webhooks.outbox import Claim, Outbox
from bos_gateway.webhooks.registered import webhooks_off
from bos_gateway.webhooks.sender import Sender

RENDERING_S: Final = 10.0
"""Time to make an event of the log, beside the time that its receiver has."""
_RETRY_S: Final = 1.0
_RELEASE_S: Final = 2.0
_JITTER: Final = 0.2
_TESTS_AT_ONCE: Final = 4
_EVENT: Final = "WEBHOOK_OUTCOME_"


@define(eq=False)
class Deliverer:
    """Claims due deliveries and attempts each in a task of its own."""

    _outbox: Outbox
    _sender: Sender
    _settings: GatewaySettings
    _metrics: GatewayMetrics
    _telemetry: Telemetry
    _tasks: set[asyncio.Task[None]] = field(init=False, factory=set)
    _under_way: Counter[str] = field(init=False, factory=Counter)
    _tests: int = field(init=False, default=0)
    _ended: asyncio.Event = field(init=False, factory=asyncio.Event)
    _backoff: Backoff = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = self._settings
        first_s, cap_s = settings.webhook_backoff_s, settings.webhook_backoff_cap_s
        self._backoff = Backoff(first_s=first_s, cap_s=cap_s, jitter=_JITTER)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Post while the block runs; then cancel attempts under way and release them."""
        try:
            log = self._telemetry.logger("bos.gateway.webhooks")
            async with periodic_tasks(log, {"webhooks": self._round}, retry_s=_RETRY_S):
                yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def test(self, webhook_id: UUID, user_id: str) -> UUID:
        """Post a test event once; returns the id of its delivery, whose end is noted by then.

        Raises:
            NotFound: the user has no such webhook.
            FailedPrecondition: the operator has turned webhooks off.
            ResourceExhausted: too many are tested at once.
        """
        if not self._settings.max_webhooks_per_user:
            raise webhooks_off()
        if self._tests >= _TESTS_AT_ONCE:
            raise ResourceExhausted(
                "Too many webhooks are tested at the moment; try again shortly.",
                reason="WEBHOOK_TESTS_FULL",
                retry_after_s=1.0,
            )
        self._tests += 1
        try:
            claim = await self._outbox.claim_test(webhook_id, user_id)
            if claim is None:
                raise NotFound("There is no such webhook.")
            await self._attempt(claim)
            return claim.delivery_id
        finally:
            self._tests -= 1

    async def _round(self) -> None:
        self._ended.clear()
        oldest_s = await self._outbox.oldest_due_s()
        self._metrics.webhook_oldest_due_seconds.set(max(0.0, oldest_s or 0.0))
        room = self._settings.max_webhook_attempts - len(self._tasks)
        if oldest_s is not None and oldest_s >= 0 and room > 0:
            limit = self._settings.max_webhook_attempts_per_origin
            for claim in await self._outbox.claim(room, limit, self._under_way):
                self._start(claim)
        # What ends may make room, or let the next event of its run go.
        wait_s = self._settings.webhook_poll_s
        if oldest_s is not None and oldest_s < 0:
            wait_s = min(wait_s, -oldest_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._ended.wait()

    def _start(self, claim: Claim) -> None:
        self._under_way[claim.origin] += 1
        task = asyncio.create_task(self._deliver(claim), name="webhook")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, claim: Claim) -> None:
        """Attempt a delivery; after an internal error it is claimed again after its lease."""
        log = self._telemetry.logger("bos.gateway.webhooks")
        try:
            await self._attempt(claim)
        except asyncio.CancelledError:
            with suppress(BosError, TimeoutError):
                async with asyncio.timeout(_RELEASE_S):
                    await self._outbox.release(claim)
            raise
        except BosError as error:
            log.warning("webhook attempt postponed", reason=error.reason)
        except Exception:
            log.exception("webhook attempt failed")
        finally:
            self._under_way[claim.origin] -= 1
            self._under_way += Counter()  # forgets what is not under way
            self._ended.set()

    async def _attempt(self, claim: Claim) -> None:
        try:
            async with asyncio.timeout(self._settings.webhook_timeout_s + RENDERING_S):
                outcome = await self._sender.attempt(claim)
        except TimeoutError:
            outcome = gateway.WEBHOOK_OUTCOME_NOT_SENT
        self._count(gateway.WebhookOutcome.Name(outcome).removeprefix(_EVENT).lower())
        if outcome == gateway.WEBHOOK_OUTCOME_ACCEPTED:
            await self._outbox.accepted(claim)
        elif outcome == gateway.WEBHOOK_OUTCOME_GONE:
            await self._outbox.gone(claim)
        else:
            wait_s = self._backoff.delay(claim.failures + 1, random.random())  # noqa: S311
            if await self._outbox.failed(claim, outcome, wait_s):
                self._count("given_up")

    def _count(self, outcome: str) -> None:
        self._metrics.webhook_deliveries.labels(outcome).inc()
