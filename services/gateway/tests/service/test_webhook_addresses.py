"""Where events may be posted: hostile addresses are refused, when added and when posted to."""

from collections.abc import AsyncIterator

import pytest
from gateway_harness.harness import Harness
from gateway_harness.receiver import KEYS, Receiver, open_receiver
from gateway_harness.webhooks import DEADLINE_S, add, hooks, refused, try_out

from bos.gateway import v1 as gateway
from bos_errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from bos_testkit.internet.urls import HOSTILE_URLS


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as opened:
        yield opened


async def test_hostile_addresses_are_refused(harness: Harness) -> None:
    """Also where the operator lets public hosts be called without TLS."""
    sendable = [url for url, _ in HOSTILE_URLS if "\ud800" not in url]
    async with harness.gateway(**KEYS, webhook_allow_http=True) as client:
        for url in sendable:
            for scheme in ("http", "https"):
                hostile = url.replace("http:", f"{scheme}:", 1).replace("{port}", "8080")
                with refused(InvalidArgument, "url"):
                    await add(client, hostile)
        await add(client, "http://example.com/hook")
        request = gateway.ListWebhooksRequest()
        listed = await hooks(client).ListWebhooks(request, timeout=DEADLINE_S)
    assert len(listed.webhooks) == 1


async def test_name_that_leads_inside_is_refused_when_event_is_posted(
    harness: Harness, receiver: Receiver
) -> None:
    """What a name resolves to is looked at with each attempt."""
    networks = {f"http://localhost:{receiver.port}": ("10.0.0.0/8",)}
    async with harness.gateway(**receiver.settings(webhook_internal_origins=networks)) as client:
        made = await add(client, f"http://localhost:{receiver.port}/hook")
        delivery = await try_out(client, made.webhook.webhook_id)
    assert delivery.outcome == gateway.WEBHOOK_OUTCOME_REFUSED
    assert not receiver.received


async def test_plain_http_and_fragments_are_refused(harness: Harness) -> None:
    async with harness.gateway(**KEYS) as client:
        for url in ("http://example.com/hook", "https://example.com/#there"):
            with refused(InvalidArgument, field="url"):
                await add(client, url)
        made = await add(client, "https://example.com/hook")
    assert made.webhook.url == "https://example.com/hook"
    assert made.secret.startswith("whsec_")


async def test_webhooks_are_counted_and_off_without_keys(harness: Harness) -> None:
    async with harness.gateway(**KEYS, max_webhooks_per_user=2) as client:
        for _ in range(2):
            await add(client, "https://example.com/hook")
        with refused(ResourceExhausted):
            await add(client, "https://example.com/hook")
        webhooks = (await hooks(client).ListWebhooks(gateway.ListWebhooksRequest())).webhooks
    async with harness.gateway() as client:
        with refused(FailedPrecondition):
            await add(client, "https://example.com/hook")
    async with harness.gateway(**KEYS, max_webhooks_per_user=0) as client:
        with refused(FailedPrecondition):
            await add(client, "https://example.com/hook")
        with refused(FailedPrecondition):
            await try_out(client, webhooks[0].webhook_id)
