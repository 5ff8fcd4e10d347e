"""Events of one run come in order, and hold up no other run."""

import pytest
from aiohttp import web
from gateway_harness.harness import Client, Harness
from gateway_harness.receiver import Receiver, accept, answer, open_receiver
from gateway_harness.webhooks import GIVEN_UP, add, deliveries, ended

from bos.gateway import v1 as gateway
from bos_testkit.agents import EchoAgent
from bos_testkit.deploy import DeployAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually


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


@pytest.fixture
async def agents(harness: Harness) -> None:
    await harness.add_agent(DeployAgent())
    await harness.add_agent(EchoAgent("sql"))


async def denied_run(harness: Harness, client: Client) -> str:
    """A run that asked for an approval, did not get it, and has ended."""
    asking = step("a", "deploy", "deploy shop 1.2")
    asking.tools.append("trigger_deployment")
    harness.planner.steps = [asking]
    run_id = ""
    async for message in client.stream():
        run_id = message.event.run_id
        if message.event.HasField("approval_requested"):
            deny = gateway.RespondApprovalRequest(
                approval_id=message.event.approval_requested.approval.approval_id,
                decision=gateway.APPROVAL_DECISION_DENY,
            )
            await gateway.ApprovalServiceStub(client.channel).RespondApproval(deny, timeout=60)
    return run_id


@pytest.mark.usefixtures("agents")
async def test_run_end_waits_for_its_earlier_event_and_others_do_not(
    harness: Harness,
) -> None:
    async with open_receiver() as receiver, harness.gateway(**receiver.settings()) as client:
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
    assert end.event["data"]["run_id"] == run_id


@pytest.mark.usefixtures("agents")
async def test_end_of_run_is_posted_once_its_earlier_event_is_given_up(
    harness: Harness,
) -> None:
    async with open_receiver() as receiver:
        settings = receiver.settings(webhook_give_up_s=0.3)
        async with harness.gateway(**settings) as client:
            receiver.answers["/hook"] = Refusing(receiver)
            made = await add(client, receiver.url())
            run_id = await denied_run(harness, client)
            await eventually(lambda: bool(receiver.accepted))
            found = await ended(client, made.webhook.webhook_id, 2)
            page = await deliveries(client, made.webhook.webhook_id)
    (accepted,) = receiver.accepted
    assert (accepted.type, accepted.event["data"]["run_id"]) == ("run.finished", run_id)
    assert [each.state for each in found].count(GIVEN_UP) == 1
    assert len(page.deliveries) == 2
