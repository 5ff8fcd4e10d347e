"""Webhooks: signed events of a user's runs, posted from an outbox, to what may be called alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from gateway_harness.answering import DENY, Following, respond
from gateway_harness.harness import Client, Harness, deploying
from gateway_harness.receiver import (
    GIVEN_UP,
    KEYS,
    LOOPBACK,
    Receiver,
    accept,
    add,
    answer,
    deliveries,
    ended,
    huge,
    look_up,
    never,
    open_receiver,
    refused,
    try_out,
)
from gateway_harness.stored import fetch, fetchval
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from bos.gateway import v1 as gateway
from bos_errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from bos_gateway.key_ring import SecretsKeyRing
from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.store import check_webhooks
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.retention import Scope, erase, erase_some
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import EchoAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.internet.urls import HOSTILE_URLS
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

DELIVERED = gateway.WEBHOOK_DELIVERY_STATE_DELIVERED


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as opened:
        yield opened


@pytest.fixture
async def client(harness: Harness, receiver: Receiver) -> AsyncIterator[Client]:
    async with harness.gateway(**receiver.settings()) as opened:
        yield opened


@pytest.fixture
async def echo(harness: Harness) -> None:
    await harness.add_agent(DeployAgent())
    await harness.plan(EchoAgent("sql"))


@pytest.mark.usefixtures("echo")
async def test_end_of_run_is_posted_signed_with_run_as_plain_json(
    receiver: Receiver, client: Client
) -> None:
    made = await add(client, receiver.url("/hook?team=7"))
    response = await client.ask(context={"api_bearer_token": "a very secret token"})
    (delivery,) = await ended(client, made.webhook.webhook_id, 1, DELIVERED)
    webhook = await look_up(client, made.webhook.webhook_id)
    (got,) = receiver.received
    event = Verifier(made.secret).verify(got.body, got.headers)
    assert event["type"] == "run.finished"
    assert event["timestamp"].endswith("Z")
    run = event["data"]["run"]
    assert run["run_id"] == event["data"]["run_id"] == response.run_id == delivery.run_id
    assert run["status"] == "RUN_STATUS_SUCCEEDED"
    assert run["response"]["answer"] == response.answer
    assert event["data"]["omitted"] == []
    assert b"a very secret token" not in got.body
    assert got.delivery_id == delivery.delivery_id
    assert got.headers["Content-Type"].startswith("application/json")
    assert (delivery.attempts, delivery.outcome) == (1, gateway.WEBHOOK_OUTCOME_ACCEPTED)
    assert webhook.HasField("last_success_time")
    assert not webhook.HasField("last_failure_time")
    with pytest.raises(WebhookVerificationError):
        Verifier(made.secret).verify(got.body + b" ", got.headers)


@pytest.mark.usefixtures("echo")
async def test_only_chosen_events_of_own_runs_are_posted(
    harness: Harness, receiver: Receiver, client: Client
) -> None:
    await add(client, receiver.url("/asked"), gateway.WEBHOOK_EVENT_APPROVAL_REQUESTED)
    made = await add(client, receiver.url("/ended"), gateway.WEBHOOK_EVENT_RUN_FINISHED)
    other = (await add(client, receiver.url("/other"))).webhook.webhook_id
    change = "UPDATE webhooks SET user_id = 'eve' WHERE webhook_id = $1"
    await fetch(harness.dsn, change, other)
    await client.ask()
    await ended(client, made.webhook.webhook_id, 1, DELIVERED)
    assert await fetchval(harness.dsn, "SELECT count(*) FROM webhook_deliveries") == 1
    await refused(deliveries(client, other), NotFound)
    assert {each.path for each in receiver.received} == {"/ended"}


async def test_a_test_says_how_the_receiver_answered(receiver: Receiver, client: Client) -> None:
    answers = {
        "/ok": (answer(200), gateway.WEBHOOK_OUTCOME_ACCEPTED),
        "/huge": (huge, gateway.WEBHOOK_OUTCOME_ACCEPTED),
        "/redirect": (
            answer(302, Location="http://169.254.169.254/"),
            gateway.WEBHOOK_OUTCOME_REDIRECTED,
        ),
        "/404": (answer(404), gateway.WEBHOOK_OUTCOME_CLIENT_ERROR),
        "/503": (answer(503), gateway.WEBHOOK_OUTCOME_SERVER_ERROR),
        "/410": (answer(410), gateway.WEBHOOK_OUTCOME_GONE),
        "/headers": (
            answer(200, **{"X-Large": "x" * 60000}),
            gateway.WEBHOOK_OUTCOME_REFUSED,
        ),
    }
    for path, (reply, outcome) in answers.items():
        receiver.answers[path] = reply
        made = await add(client, receiver.url(path))
        delivery = await try_out(client, made.webhook.webhook_id)
        assert delivery.outcome == outcome, path
        accepted = outcome == gateway.WEBHOOK_OUTCOME_ACCEPTED
        assert delivery.state == (DELIVERED if accepted else GIVEN_UP), path
        (got,) = [each for each in receiver.received if each.path == path]
        event = Verifier(made.secret).verify(got.body, got.headers)
        assert event["type"] == "webhook.test"
        assert event["data"] == {"webhook_id": made.webhook.webhook_id}


async def test_receiver_that_never_answers_is_timed_out(
    harness: Harness, receiver: Receiver
) -> None:
    receiver.answers["/hook"] = never
    async with harness.gateway(**receiver.settings(webhook_timeout_s=0.5)) as client:
        made = await add(client, receiver.url())
        delivery = await try_out(client, made.webhook.webhook_id)
    assert (delivery.state, delivery.outcome) == (GIVEN_UP, gateway.WEBHOOK_OUTCOME_TIMED_OUT)


@pytest.mark.usefixtures("echo")
async def test_410_disables_a_webhook_until_a_test_is_accepted(
    receiver: Receiver, client: Client
) -> None:
    receiver.answers["/hook"] = answer(410)
    made = await add(client, receiver.url())
    webhook_id = made.webhook.webhook_id
    await client.ask()
    (delivery,) = await ended(client, webhook_id, 1, GIVEN_UP)
    assert delivery.outcome == gateway.WEBHOOK_OUTCOME_GONE
    assert (await look_up(client, webhook_id)).disabled
    await client.ask()
    assert len((await deliveries(client, webhook_id)).deliveries) == 1
    await try_out(client, webhook_id)
    assert (await look_up(client, webhook_id)).disabled
    receiver.answers.clear()
    await try_out(client, webhook_id)
    assert not (await look_up(client, webhook_id)).disabled
    await client.ask()
    await eventually(lambda: len(receiver.accepted) == 2)
    assert [each.type for each in receiver.accepted] == ["webhook.test", "run.finished"]


@pytest.mark.usefixtures("echo")
async def test_event_that_keeps_failing_is_given_up_and_shown_as_such(
    harness: Harness, receiver: Receiver
) -> None:
    receiver.answers["/hook"] = answer(500)
    async with harness.gateway(**receiver.settings(webhook_give_up_s=0.3)) as client:
        made = await add(client, receiver.url())
        await client.ask()
        (delivery,) = await ended(client, made.webhook.webhook_id, 1, GIVEN_UP)
        assert client.metric("bos_webhook_deliveries_total", outcome="given_up") == 1
    assert delivery.attempts >= 2
    assert delivery.outcome == gateway.WEBHOOK_OUTCOME_SERVER_ERROR
    assert delivery.HasField("end_time")


@pytest.mark.usefixtures("echo")
async def test_slow_receivers_hold_up_no_other(harness: Harness, receiver: Receiver) -> None:
    async with open_receiver() as quick:
        receiver.answers["/slow"] = never
        origins = {receiver.origin: LOOPBACK, quick.origin: LOOPBACK}
        settings = receiver.settings(
            webhook_internal_origins=origins,
            max_webhook_attempts=3,
            max_webhook_attempts_per_origin=2,
            webhook_timeout_s=60,
        )
        async with harness.gateway(**settings) as client:
            for _ in range(4):
                await add(client, receiver.url("/slow"))
            await add(client, quick.url())
            for _ in range(3):
                await client.ask()
            await eventually(lambda: len(quick.accepted) == 3 and len(receiver.received) >= 2)
            assert len(receiver.received) == 2, "attempts at once to one origin are bounded"


@pytest.mark.usefixtures("echo")
async def test_deleting_a_webhook_drops_what_was_not_delivered(
    harness: Harness, receiver: Receiver, client: Client
) -> None:
    receiver.answers["/hook"] = answer(500)
    made = await add(client, receiver.url())
    await client.ask()
    await eventually(lambda: bool(receiver.received))
    webhook_id = made.webhook.webhook_id
    await client.call(gateway.DeleteWebhookRequest(webhook_id=webhook_id))
    await client.ask()
    assert await fetchval(harness.dsn, "SELECT count(*) FROM webhook_deliveries") == 0


@pytest.mark.usefixtures("echo")
async def test_two_gateways_post_each_event_once(harness: Harness, receiver: Receiver) -> None:
    settings = receiver.settings()
    async with harness.gateway(**settings) as one, harness.gateway(**settings) as other:
        made = await add(one, receiver.url())
        answers = await asyncio.gather(*(each.ask() for each in (one, other) * 5))
        await ended(other, made.webhook.webhook_id, len(answers), DELIVERED)
    posted = [each.event["data"]["run_id"] for each in receiver.received]
    assert sorted(posted) == sorted(answer.run_id for answer in answers)


@pytest.mark.usefixtures("echo")
async def test_pages_of_deliveries_have_each_once(receiver: Receiver, client: Client) -> None:
    made = await add(client, receiver.url())
    for _ in range(3):
        await client.ask()
    whole = await ended(client, made.webhook.webhook_id, 3, DELIVERED)
    first = await deliveries(client, made.webhook.webhook_id, page_size=2)
    rest = await deliveries(
        client, made.webhook.webhook_id, page_size=2, page_token=first.next_page_token
    )
    paged = [each.delivery_id for each in (*first.deliveries, *rest.deliveries)]
    assert paged == [each.delivery_id for each in whole]
    assert not rest.next_page_token


@pytest.mark.usefixtures("echo")
async def test_maintenance_deletes_old_and_orphan_deliveries(
    harness: Harness, receiver: Receiver, pool: Any
) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        await client.ask()
        await ended(client, made.webhook.webhook_id, 1, DELIVERED)

    async def left(**settings: float) -> list[tuple[int, int]]:
        await Maintenance(pool, None, None, **settings).round()
        states = "SELECT state, outcome FROM webhook_deliveries ORDER BY position"
        return [tuple(row) for row in await pool.fetch(states)]

    accepted = (DELIVERED, gateway.WEBHOOK_OUTCOME_ACCEPTED)
    assert await left() == [accepted], "a week has not passed"
    await pool.execute(
        "INSERT INTO webhook_deliveries (webhook_id, user_id, event) "
        "VALUES (gen_random_uuid(), 'x', 1)"
    )
    await pool.execute("UPDATE webhooks SET disabled_at = now()")
    await pool.execute(
        "INSERT INTO webhook_deliveries (webhook_id, user_id, event, due_at) "
        "SELECT webhook_id, user_id, 1, now() - interval '1 s' FROM webhooks"
    )
    assert await left() == [accepted, (GIVEN_UP, gateway.WEBHOOK_OUTCOME_GONE)]
    assert await left(delivery_days=1e-9) == []


async def test_doctor_says_when_secrets_cannot_be_read(harness: Harness) -> None:
    ring = SecretsKeyRing.parse(KEYS["secrets_keys"])
    other = SecretsKeyRing.parse("k2=" + "B" * 43 + "=")

    async def levels(ring: SecretsKeyRing) -> list[str]:
        deployment = Deployment(
            "test", "", "", "", {}, "", 1.0, secrets=ring, secrets_key_ids=ring.ids
        )
        async with connect(harness.dsn, schema=SCHEMA) as session:
            return [found.level for found in await check_webhooks(session, deployment)]

    async with harness.gateway(**KEYS) as client:
        assert await levels(ring) == []
        await add(client, "https://example.com/hook")
    assert await levels(ring) == ["ok"]
    assert await levels(other) == ["problem"]


async def test_event_whose_key_is_gone_is_not_sent_until_key_is_back(
    harness: Harness, receiver: Receiver
) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
    other = {"secrets_keys": "k2=" + "B" * 43 + "="}
    async with harness.gateway(**receiver.settings(**other)) as client:
        delivery = await try_out(client, made.webhook.webhook_id)
    assert delivery.outcome == gateway.WEBHOOK_OUTCOME_NOT_SENT
    assert not receiver.received
    both = {"secrets_keys": f"{other['secrets_keys']},{KEYS['secrets_keys']}"}
    async with harness.gateway(**receiver.settings(**both)) as client:
        delivery = await try_out(client, made.webhook.webhook_id)
    assert delivery.outcome == gateway.WEBHOOK_OUTCOME_ACCEPTED


# Addresses


async def test_hostile_addresses_are_refused(harness: Harness) -> None:
    """Also where the operator lets public hosts be called without TLS."""
    sendable = [url for url, _ in HOSTILE_URLS if "\ud800" not in url]
    async with harness.gateway(**KEYS, webhook_allow_http=True) as client:
        for url in sendable:
            for scheme in ("http", "https"):
                hostile = url.replace("http:", f"{scheme}:", 1).replace("{port}", "8080")
                await refused(add(client, hostile), InvalidArgument, "url")
        await refused(add(client, "https://example.com/#there"), InvalidArgument, "url")
        await add(client, "http://example.com/hook")
        listed = await client.call(gateway.ListWebhooksRequest())
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


async def test_webhooks_are_counted_and_off_without_keys(harness: Harness) -> None:
    url = "https://example.com/hook"
    async with harness.gateway(**KEYS, max_webhooks_per_user=2) as client:
        await refused(add(client, "http://example.com/hook"), InvalidArgument, "url")
        made = [await add(client, url) for _ in range(2)]
        stored = await fetch(harness.dsn, "SELECT secret FROM webhooks")
        for each, row in zip(made, stored, strict=True):
            assert each.secret.startswith("whsec_")
            assert each.secret.encode() not in row["secret"], "it is encrypted"
        await refused(add(client, url), ResourceExhausted)
    async with harness.gateway() as client:
        await refused(add(client, url), FailedPrecondition)
    async with harness.gateway(**KEYS, max_webhooks_per_user=0) as client:
        await refused(add(client, url), FailedPrecondition)
        await refused(try_out(client, made[0].webhook.webhook_id), FailedPrecondition)


# Order within a run


class Refusing:
    """Refuses requests for approvals while it is closed."""

    def __init__(self, receiver: Receiver) -> None:
        self.closed = True
        self.refused = 0
        self._receiver = receiver

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        if self.closed and self._receiver.received[-1].type == "approval.requested":
            self.refused += 1
            return await answer(500)(request)
        return await accept(request)


async def denied_run(harness: Harness, client: Client) -> str:
    """A run that asked for an approval, did not get it, and has ended."""
    harness.planner.steps = [deploying()]
    following = Following(client)
    await respond(client, await following.asked(), DENY)
    return (await following.end())[0].run_id


@pytest.mark.usefixtures("echo")
async def test_run_end_waits_for_its_earlier_event_and_others_do_not(
    harness: Harness, receiver: Receiver, client: Client
) -> None:
    receiving = receiver.answers["/hook"] = Refusing(receiver)
    await add(client, receiver.url())
    run_id = await denied_run(harness, client)
    harness.planner.steps = [step("a", "sql", "What is new?")]
    other = (await client.ask()).run_id
    await eventually(lambda: bool(receiver.accepted))
    tries = receiving.refused
    await eventually(lambda: receiving.refused > tries + 2)
    assert [each.event["data"]["run_id"] for each in receiver.accepted] == [other]
    of_run = [each for each in receiver.received if each.event["data"]["run_id"] == run_id]
    assert {each.type for each in of_run} == {"approval.requested"}
    receiving.closed = False
    await eventually(lambda: len(receiver.accepted) == 3)
    _, asked, end = receiver.accepted
    assert [asked.type, end.type] == ["approval.requested", "run.finished"]
    shown = asked.event["data"]["approval"]
    assert shown["status"] == "APPROVAL_STATUS_PENDING"
    assert shown["actions"][0]["tool"] == "trigger_deployment"
    assert end.event["data"]["run_id"] == run_id


async def test_end_of_run_is_posted_once_its_earlier_event_is_given_up(
    harness: Harness, receiver: Receiver
) -> None:
    await harness.add_agent(DeployAgent())
    async with harness.gateway(**receiver.settings(webhook_give_up_s=0.3)) as client:
        receiver.answers["/hook"] = Refusing(receiver)
        made = await add(client, receiver.url())
        run_id = await denied_run(harness, client)
        await eventually(lambda: bool(receiver.accepted))
        found = await ended(client, made.webhook.webhook_id, 2)
    (accepted,) = receiver.accepted
    assert (accepted.type, accepted.event["data"]["run_id"]) == ("run.finished", run_id)
    assert [each.state for each in found].count(GIVEN_UP) == 1


@pytest.mark.usefixtures("echo")
@pytest.mark.parametrize("by_account", [True, False])
async def test_webhooks_go_with_the_runs_of_their_user(
    harness: Harness, receiver: Receiver, client: Client, *, by_account: bool
) -> None:
    receiver.answers["/hook"] = answer(500)
    await add(client, receiver.url())
    await client.ask()
    await eventually(lambda: bool(receiver.received))
    async with connect(harness.dsn, schema=SCHEMA) as session:
        user_id = await session.fetchval("SELECT user_id FROM webhooks")
        if by_account:
            _, _, done = await erase_some(session, user_id, RunFiles(None))
            assert done
        else:
            await erase(session, Scope(user_id))
        for table in ("webhooks", "webhook_deliveries", "runs"):
            assert await session.fetchval(f"SELECT count(*) FROM {table}") == 0
