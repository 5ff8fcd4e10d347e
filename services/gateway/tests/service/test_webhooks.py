"""Webhooks: signed events of a user's runs, posted from an outbox, to what may be called alone."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from gateway_harness.harness import Harness
from gateway_harness.receiver import (
    KEYS,
    LOOPBACK,
    Receiver,
    answer,
    huge,
    never,
    open_receiver,
)
from gateway_harness.webhooks import (
    DEADLINE_S,
    add,
    deliveries,
    hooks,
    look_up,
    refused,
    try_out,
    until_state,
)
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from bos.gateway import v1 as gateway
from bos_errors import NotFound
from bos_gateway.key_ring import SecretsKeyRing
from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.store import check_webhooks
from bos_gateway.run_log.maintenance import Maintenance
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.webhooks.signing import signed_headers
from bos_postgres import connect, open_database
from bos_testkit.agents import EchoAgent
from bos_testkit.audit import audit_entries
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

PENDING = gateway.WEBHOOK_DELIVERY_STATE_PENDING
DELIVERED = gateway.WEBHOOK_DELIVERY_STATE_DELIVERED
GIVEN_UP = gateway.WEBHOOK_DELIVERY_STATE_GIVEN_UP


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with open_receiver() as opened:
        yield opened


@pytest.fixture
async def echo(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("sql"))
    harness.planner.steps = [step("a", "sql", "What is new?")]


@pytest.mark.usefixtures("echo")
async def test_end_of_run_is_posted_signed_with_run_as_plain_json(
    harness: Harness, receiver: Receiver
) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url("/hook?team=7"))
        response = await client.ask(context={"api_bearer_token": "a very secret token"})
        (delivery,) = await until_state(client, made.webhook.webhook_id, DELIVERED)
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


async def test_approval_that_waits_is_posted_before_end_of_its_run(
    harness: Harness, receiver: Receiver
) -> None:
    await harness.add_agent(DeployAgent())
    asking = step("a", "deploy", "deploy shop 1.2")
    asking.tools.append("trigger_deployment")
    harness.planner.steps = [asking]
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        call = client.stream()
        async for message in call:
            if message.event.HasField("approval_requested"):
                approval = message.event.approval_requested.approval
                await eventually(lambda: len(receiver.accepted) == 1)
                deny = gateway.RespondApprovalRequest(
                    approval_id=approval.approval_id, decision=gateway.APPROVAL_DECISION_DENY
                )
                await gateway.ApprovalServiceStub(client.channel).RespondApproval(deny, timeout=60)
        await until_state(client, made.webhook.webhook_id, DELIVERED)
    asked, ended = receiver.accepted
    assert [asked.type, ended.type] == ["approval.requested", "run.finished"]
    shown = asked.event["data"]["approval"]
    assert shown["approval_id"] == approval.approval_id
    assert shown["status"] == "APPROVAL_STATUS_PENDING"
    assert shown["actions"][0]["tool"] == "trigger_deployment"
    assert asked.event["data"]["run_id"] == ended.event["data"]["run_id"]


@pytest.mark.usefixtures("echo")
async def test_only_chosen_events_of_own_runs_are_posted(
    harness: Harness, receiver: Receiver
) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        await add(client, receiver.url("/asked"), gateway.WEBHOOK_EVENT_APPROVAL_REQUESTED)
        ended = await add(client, receiver.url("/ended"), gateway.WEBHOOK_EVENT_RUN_FINISHED)
        other = await add(client, receiver.url("/other"))
        async with connect(harness.dsn, schema=SCHEMA) as session:
            await session.execute(
                "UPDATE webhooks SET user_id = 'eve' WHERE webhook_id = $1",
                other.webhook.webhook_id,
            )
        await client.ask()
        await until_state(client, ended.webhook.webhook_id, DELIVERED)
        async with connect(harness.dsn, schema=SCHEMA) as session:
            assert await session.fetchval("SELECT count(*) FROM webhook_deliveries") == 1
        with refused(NotFound):
            await deliveries(client, other.webhook.webhook_id)
    assert {each.path for each in receiver.received} == {"/ended"}


@pytest.mark.usefixtures("echo")
async def test_receiver_that_was_down_gets_the_event_under_the_same_id(
    harness: Harness, receiver: Receiver
) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        await receiver.stop()
        await client.ask()

        async def failed() -> bool:
            found = (await deliveries(client, made.webhook.webhook_id)).deliveries
            return bool(found) and found[0].attempts > 1

        async with asyncio.timeout(DEADLINE_S):
            while not await failed():  # noqa: ASYNC110  it happens in the gateway
                await asyncio.sleep(0.01)
        (waiting,) = (await deliveries(client, made.webhook.webhook_id)).deliveries
        assert (waiting.state, waiting.outcome) == (PENDING, gateway.WEBHOOK_OUTCOME_UNREACHABLE)
        assert waiting.HasField("next_attempt_time")
        receiver.answers["/hook"] = answer(500)
        await receiver.start()
        await eventually(lambda: len(receiver.received) >= 2)
        receiver.answers.clear()
        (delivery,) = await until_state(client, made.webhook.webhook_id, DELIVERED)
        webhook = await look_up(client, made.webhook.webhook_id)
        assert client.metric("bos_webhook_deliveries_total", outcome="server_error") >= 2
        assert client.metric("bos_webhook_deliveries_total", outcome="accepted") == 1
    assert webhook.HasField("last_failure_time")
    assert {each.delivery_id for each in receiver.received} == {delivery.delivery_id}
    assert {each.body for each in receiver.received} == {receiver.accepted[0].body}


async def test_a_test_says_how_the_receiver_answered(harness: Harness, receiver: Receiver) -> None:
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
    async with harness.gateway(**receiver.settings()) as client:
        for path, (respond, outcome) in answers.items():
            receiver.answers[path] = respond
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
    harness: Harness, receiver: Receiver
) -> None:
    receiver.answers["/hook"] = answer(410)
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        webhook_id = made.webhook.webhook_id
        await client.ask()
        (delivery,) = await until_state(client, webhook_id, GIVEN_UP)
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
        (delivery,) = await until_state(client, made.webhook.webhook_id, GIVEN_UP)
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


async def test_webhook_secrets_are_encrypted_and_changes_audited(
    harness: Harness,
) -> None:
    async with harness.gateway(**KEYS) as client:
        made = await add(client, "https://example.com/a-path-that-is-a-secret")
        request = gateway.DeleteWebhookRequest(webhook_id=made.webhook.webhook_id)
        async with connect(harness.dsn, schema=SCHEMA) as session:
            row = await session.fetchrow("SELECT * FROM webhooks")
            assert row is not None
            assert made.secret.encode() not in row["secret"]
        await hooks(client).DeleteWebhook(request, timeout=DEADLINE_S)
        with refused(NotFound):
            await hooks(client).DeleteWebhook(request, timeout=DEADLINE_S)
    entries = await audit_entries(harness.dsn, SCHEMA)
    changes = [each for each in entries if each["action"].startswith("webhook.")]
    assert [each["action"] for each in changes] == ["webhook.created", "webhook.deleted"]
    assert {each["target"] for each in changes} == {made.webhook.webhook_id}
    assert changes[0]["details"] == {"host": "example.com"}


@pytest.mark.usefixtures("echo")
async def test_deleting_a_webhook_drops_what_was_not_delivered(
    harness: Harness, receiver: Receiver
) -> None:
    receiver.answers["/hook"] = answer(500)
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        await client.ask()
        await eventually(lambda: bool(receiver.received))
        request = gateway.DeleteWebhookRequest(webhook_id=made.webhook.webhook_id)
        await hooks(client).DeleteWebhook(request, timeout=DEADLINE_S)
        await client.ask()
        async with connect(harness.dsn, schema=SCHEMA) as session:
            assert await session.fetchval("SELECT count(*) FROM webhook_deliveries") == 0


@pytest.mark.usefixtures("echo")
async def test_two_gateways_post_each_event_once(harness: Harness, receiver: Receiver) -> None:
    settings = receiver.settings()
    async with harness.gateway(**settings) as one, harness.gateway(**settings) as other:
        made = await add(one, receiver.url())
        answers = await asyncio.gather(*(each.ask() for each in (one, other) * 5))
        found = await until_state(other, made.webhook.webhook_id, DELIVERED)
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < len(answers):
                found = await until_state(other, made.webhook.webhook_id, DELIVERED)
    posted = [each.event["data"]["run_id"] for each in receiver.received]
    assert sorted(posted) == sorted(answer.run_id for answer in answers)


@pytest.mark.usefixtures("echo")
async def test_pages_of_deliveries_have_each_once(harness: Harness, receiver: Receiver) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        for _ in range(3):
            await client.ask()
        whole = await until_state(client, made.webhook.webhook_id, DELIVERED)
        first = await deliveries(client, made.webhook.webhook_id, page_size=2)
        rest = await deliveries(
            client, made.webhook.webhook_id, page_size=2, page_token=first.next_page_token
        )
    paged = [each.delivery_id for each in (*first.deliveries, *rest.deliveries)]
    assert paged == [each.delivery_id for each in whole]
    assert not rest.next_page_token


@pytest.mark.usefixtures("echo")
async def test_maintenance_deletes_old_and_orphan_deliveries(
    harness: Harness, receiver: Receiver
) -> None:
    async with harness.gateway(**receiver.settings()) as client:
        made = await add(client, receiver.url())
        await client.ask()
        await until_state(client, made.webhook.webhook_id, DELIVERED)
    async with (
        open_database(harness.dsn, schema=SCHEMA, max_size=1) as pool,
        connect(harness.dsn, schema=SCHEMA) as session,
    ):
        count = "SELECT count(*) FROM webhook_deliveries"
        maintenance = Maintenance(pool, None, None)  # type: ignore[arg-type]
        await maintenance.round()
        assert await session.fetchval(count) == 1, "a week has not passed"
        await session.execute(
            "INSERT INTO webhook_deliveries (webhook_id, user_id, event) "
            "VALUES (gen_random_uuid(), 'x', 1)"
        )
        await session.execute("UPDATE webhooks SET disabled_at = now()")
        await session.execute(
            "INSERT INTO webhook_deliveries (webhook_id, user_id, event, due_at) "
            "SELECT webhook_id, user_id, 1, now() - interval '1 s' FROM webhooks"
        )
        maintenance = Maintenance(pool, None, None)  # type: ignore[arg-type]
        await maintenance.round()
        states = "SELECT state, outcome FROM webhook_deliveries ORDER BY position"
        found = [tuple(row) for row in await session.fetch(states)]
        assert found == [
            (DELIVERED, gateway.WEBHOOK_OUTCOME_ACCEPTED),
            (GIVEN_UP, gateway.WEBHOOK_OUTCOME_GONE),
        ]
        maintenance = Maintenance(pool, None, None, delivery_days=1e-9)  # type: ignore[arg-type]
        await maintenance.round()
        assert await session.fetchval(count) == 0


@pytest.mark.usefixtures("echo")
async def test_a_stopped_gateway_leaves_its_attempts_to_the_next(
    harness: Harness, receiver: Receiver
) -> None:
    receiver.answers["/hook"] = never
    async with harness.gateway(**receiver.settings(webhook_timeout_s=60)) as client:
        made = await add(client, receiver.url())
        await client.ask()
        await eventually(lambda: bool(receiver.received))
    receiver.answers.clear()
    async with harness.gateway(**receiver.settings()) as client:
        (delivery,) = await until_state(client, made.webhook.webhook_id, DELIVERED)
    assert delivery.attempts == 2
    assert {each.delivery_id for each in receiver.received} == {delivery.delivery_id}


def test_signature_is_that_of_the_specification() -> None:
    body = json.dumps({"test": 2432232314}).encode()
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = signed_headers(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert headers["webhook-id"] == "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert headers["webhook-timestamp"] == "1614265330"
    version, _, signature = headers["webhook-signature"].partition(",")
    assert version == "v1"
    assert len(signature) == 44


async def test_unknown_webhook_ids_are_not_found(harness: Harness) -> None:
    async with harness.gateway(**KEYS) as client:
        for webhook_id in ("nonsense", "00000000-0000-0000-0000-000000000000"):
            with refused(NotFound):
                await look_up(client, webhook_id)
            with refused(NotFound):
                await try_out(client, webhook_id)
            with refused(NotFound):
                await deliveries(client, webhook_id)


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
