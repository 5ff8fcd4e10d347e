"""Streams of A2A over deaths and decisions elsewhere, and protocols that keep nothing."""

import asyncio
from contextlib import aclosing

import httpx
import pytest
from a2a.types import a2a_pb2 as a2a

from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_protocols.service import serve as serve_protocols
from bos_protocols.settings import ProtocolsSettings

from .a2a_endpoint import (
    A2aEndpoint,
    A2aGrpcEndpoint,
    A2aHttpEndpoint,
    A2aJsonRpcEndpoint,
    Following,
    message,
)
from .endpoint import State
from .harness import ANSWER, DEPLOYMENT, Harness

pytestmark = [pytest.mark.rest, pytest.mark.process]

by_every_binding = pytest.mark.parametrize(
    "kind", [A2aHttpEndpoint, A2aJsonRpcEndpoint, A2aGrpcEndpoint], ids=lambda kind: kind.name
)


@by_every_binding
async def test_a_stream_goes_on_over_a_kill_of_the_gateway(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    harness.gateway.composer.release = asyncio.Event()
    following = Following()
    killed = False
    async with kind(harness, harness.token()) as endpoint:
        request = message("Who brought what?")
        async with aclosing(
            endpoint.client.send_message(request, context=endpoint.context)
        ) as updates:  # type: ignore[type-var]
            async for update in updates:
                following.take(update)
                if following.pieces and not killed:
                    killed = True
                    await harness.kill_gateway()
                    await harness.start_gateway()
                    harness.gateway.composer.release.set()
    seen = following.seen()
    assert killed
    assert (seen.state, seen.text) == (State.ANSWERED, ANSWER)


@by_every_binding
async def test_a_subscriber_sees_what_was_decided_elsewhere(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    harness.plan(DEPLOYMENT)
    following = Following()
    async with (
        kind(harness, harness.token()) as endpoint,
        BosClient(harness.target, api_key=harness.token()) as console,
    ):
        waiting = await endpoint.ask("Put it into production")
        request = a2a.SubscribeToTaskRequest(id=waiting.handle)
        async with aclosing(
            endpoint.client.subscribe(request, context=endpoint.context)
        ) as updates:  # type: ignore[type-var]
            async for update in updates:
                following.take(update)
                if update.HasField("task"):
                    assert following.seen().state is State.WAITS_FOR_APPROVAL
                    await console.approve(following.task.status.message.message_id)
    assert following.seen().state is State.ANSWERED
    assert harness.agent.landed == {DEPLOYMENT: 1}


async def test_another_replica_knows_every_task_and_says_when_the_gateway_is_away(
    harness: Harness,
) -> None:
    settings = ProtocolsSettings.load(
        server=ServerSettings.load(port=0, grace_s=0.2), gateway_target=harness.target
    )
    headers = {"Authorization": f"Bearer {harness.token()}", "A2A-Version": "1.0"}
    async with A2aHttpEndpoint(harness, harness.token()) as endpoint:
        task_id = (await endpoint.ask("Who brought what?")).handle
    async with (
        serve_protocols(settings, Telemetry.for_tests("protocols")) as other,
        httpx.AsyncClient(base_url=f"http://{other.address}", headers=headers, timeout=120) as http,
    ):
        path = f"/a2a/v1/tasks/{task_id}"
        assert (await http.get(path)).json()["status"]["state"] == "TASK_STATE_COMPLETED"
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert [one["protocolBinding"] for one in card["supportedInterfaces"]] == [
            "HTTP+JSON",
            "JSONRPC",
        ]
        forged = await http.get(path, headers={"Authorization": "Bearer forged"})
        assert forged.status_code == 401
        assert forged.json()["error"]["status"] == "UNAUTHENTICATED"
        await harness.kill_gateway()
        away = await http.get(path)
        assert away.status_code == 503
        call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task_id}}
        assert (await http.post("/a2a", json=call)).json()["error"]["code"] == -32603
        await harness.start_gateway()
