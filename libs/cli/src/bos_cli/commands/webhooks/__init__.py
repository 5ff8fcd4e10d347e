"""``bos webhooks …``: add, list, test, show deliveries, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos.gateway.v1 import (
    WEBHOOK_DELIVERY_STATE_DELIVERED,
    WEBHOOK_EVENT_APPROVAL_REQUESTED,
    WEBHOOK_EVENT_RUN_FINISHED,
    WEBHOOK_EVENT_TEST,
    ListWebhooksResponse,
    WebhookDeliveryState,
    WebhookOutcome,
)
from bos_cli.render import make_console
from bos_cli.session import ANSWERED, FAILED, print_json, report, run
from bos_client.text import time_text, visible
from bos_client.webhooks import WebhookClient
from bos_errors import BosError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos.gateway.v1 import Webhook, WebhookDelivery
    from bos_cli.session import Target

_EVENTS = {
    "run.finished": WEBHOOK_EVENT_RUN_FINISHED,
    "approval.requested": WEBHOOK_EVENT_APPROVAL_REQUESTED,
}
_NAMES = {number: name for name, number in _EVENTS.items()} | {WEBHOOK_EVENT_TEST: "webhook.test"}
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, nothing else.")


@click.group()
def webhooks() -> None:
    """Have the ends of your runs, and approvals that wait, posted to an address of yours."""


@webhooks.command("add")
@click.argument("url")
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(list(_EVENTS)),
    help="What is posted; may be repeated. Without it, everything.",
)
@_json
@click.pass_obj
def add(target: Target, url: str, events: Sequence[str], as_json: bool) -> None:
    """Add an address; its signing secret is shown once."""

    async def work() -> int:
        async with _client(target) as client:
            made = await client.add(url, [_EVENTS[name] for name in dict.fromkeys(events)])
        if as_json:
            print_json(made)
        else:
            click.echo(f"Added {made.webhook.webhook_id}. Its secret, shown this once:")
            click.echo(f"  {made.secret}")
            click.echo(f"Try it out: bos webhooks test {made.webhook.webhook_id}")
        return ANSWERED

    run(work(), as_json=as_json)


@webhooks.command("list")
@_json
@click.pass_obj
def list_webhooks(target: Target, as_json: bool) -> None:
    """Your webhooks, and how their receivers answered last."""

    async def work() -> int:
        async with _client(target) as client:
            found = await client.webhooks()
        if as_json:
            print_json(ListWebhooksResponse(webhooks=found))
        else:
            make_console().print(_webhooks(found) if found else "no webhooks")
        return ANSWERED

    run(work(), as_json=as_json)


@webhooks.command("test")
@click.argument("webhook_id")
@_json
@click.pass_obj
def test(target: Target, webhook_id: str, as_json: bool) -> None:
    """Post a test event once, and say how the receiver answered."""

    async def work() -> int:
        async with _client(target) as client:
            delivery = await client.test(webhook_id)
        if as_json:
            print_json(delivery)
        else:
            click.echo(f"{_state(delivery)}: {_outcome(delivery)}")
        return ANSWERED if delivery.state == WEBHOOK_DELIVERY_STATE_DELIVERED else FAILED

    run(work(), as_json=as_json)


@webhooks.command("deliveries")
@click.argument("webhook_id")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most to show."
)
@click.option("--page", default="", metavar="TOKEN", help="Where the previous page ended.")
@_json
@click.pass_obj
def deliveries(target: Target, webhook_id: str, limit: int, page: str, as_json: bool) -> None:
    """What was posted to a webhook, or is to be, newest first."""

    async def work() -> int:
        async with _client(target) as client:
            found = await client.deliveries(webhook_id, limit, page)
        if as_json:
            print_json(found)
            return ANSWERED
        console = make_console()
        console.print(_deliveries(found.deliveries) if found.deliveries else "no deliveries")
        if found.next_page_token:
            more = f"more: bos webhooks deliveries {visible(webhook_id)} --page "
            console.print(Text(more + visible(found.next_page_token)))
        return ANSWERED

    run(work(), as_json=as_json)


@webhooks.command("rm")
@click.argument("webhook_ids", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def remove(target: Target, webhook_ids: Sequence[str], yes: bool) -> None:
    """Delete webhooks, with what was not delivered yet."""

    async def work() -> int:
        code = ANSWERED
        async with _client(target) as client:
            for webhook_id in dict.fromkeys(webhook_ids):
                try:
                    url = visible((await client.webhook(webhook_id)).url)
                    if yes or click.confirm(f"Delete {url}?"):
                        await client.delete(webhook_id)
                        click.echo(f"Deleted {url}.")
                except BosError as error:
                    code = max(code, report(error))
        return code

    run(work())


def _client(target: Target) -> WebhookClient:
    found = target.connection()
    return WebhookClient(found.target, api_key=found.api_key, tokens=found.tokens)


def _grid(*columns: str) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in columns:
        grid.add_column(name)
    return grid


def _webhooks(found: Sequence[Webhook]) -> Grid:
    grid = _grid("webhook", "address", "events", "accepted", "failed")
    for each in found:
        events = ", ".join(_NAMES.get(event, "unknown") for event in each.events)
        accepted = time_text(each.last_success_time) if each.HasField("last_success_time") else ""
        failed = time_text(each.last_failure_time) if each.HasField("last_failure_time") else ""
        state = "disabled: gone" if each.disabled else failed
        grid.add_row(visible(each.webhook_id), Text(visible(each.url)), events, accepted, state)
    return grid


def _deliveries(found: Sequence[WebhookDelivery]) -> Grid:
    grid = _grid("delivery", "event", "run", "state", "attempts", "answer")
    for each in found:
        event = _NAMES.get(each.event, "unknown")
        ids = visible(each.delivery_id), event, visible(each.run_id)
        grid.add_row(*ids, _state(each), str(each.attempts), _outcome(each))
    return grid


def _state(delivery: WebhookDelivery) -> str:
    return _word(WebhookDeliveryState.Name(delivery.state), "WEBHOOK_DELIVERY_STATE_")


def _outcome(delivery: WebhookDelivery) -> str:
    if not delivery.outcome:
        return "none yet"
    return _word(WebhookOutcome.Name(delivery.outcome), "WEBHOOK_OUTCOME_")


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).replace("_", " ").lower()
