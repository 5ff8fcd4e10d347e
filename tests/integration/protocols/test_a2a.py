"""What A2A says beyond the common cases: cards, ids, refusals, decisions, and deaths of others."""

from __future__ import annotations

import ast
import asyncio
import re
from contextlib import aclosing
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import new_text_message
from a2a.types import a2a_pb2 as a2a
from a2a.types.a2a_pb2_grpc import A2AServiceStub
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value

from bos_client import BosClient

from .a2a_endpoint import (
    A2aEndpoint,
    A2aGrpcEndpoint,
    A2aHttpEndpoint,
    A2aJsonRpcEndpoint,
    Following,
    message,
    seen_of,
)
from .endpoint import State
from .harness import ANSWER, DEPLOYMENT, Harness, another_replica

pytestmark = [
    pytest.mark.rest,
    pytest.mark.process,
    pytest.mark.asyncio(loop_scope="module"),
]

by_every_binding = pytest.mark.parametrize(
    "kind", [A2aHttpEndpoint, A2aJsonRpcEndpoint, A2aGrpcEndpoint], ids=lambda kind: kind.name
)


async def sent(endpoint: A2aEndpoint, request: a2a.SendMessageRequest) -> a2a.Task:
    """The task of a message, once it rests."""
    (response,) = [one async for one in endpoint.updates(request)]
    return response.task


async def refused(endpoint: A2aEndpoint, request: a2a.SendMessageRequest) -> type[Exception]:
    """How a message is refused, streamed and not; both ways alike."""
    with pytest.raises(Exception) as plain:  # noqa: PT011  which one is the result
        await sent(endpoint, request)
    with pytest.raises(type(plain.value)):
        async for _ in endpoint.client.send_message(request, context=endpoint.context):
            pass
    assert "Traceback" not in str(plain.value)
    return plain.type


async def test_everybody_gets_the_card_and_callers_one_with_their_agents(harness: Harness) -> None:
    async with httpx.AsyncClient(base_url=harness.rest_url) as anonymous:
        card = (await anonymous.get("/.well-known/agent-card.json")).json()
        refusal = await anonymous.get("/a2a/v1/extendedAgentCard", headers={"A2A-Version": "1.0"})
    assert refusal.status_code == 401
    offered = {one["protocolBinding"]: one["url"] for one in card["supportedInterfaces"]}
    assert harness.protocols is not None
    assert offered == {
        "HTTP+JSON": f"{harness.rest_url}/a2a/v1",
        "JSONRPC": f"{harness.rest_url}/a2a",
        "GRPC": harness.protocols.a2a_address,
    }
    assert card["capabilities"] == {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": True,
    }
    assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "Bearer"
    assert [skill["id"] for skill in card["skills"]] == ["ask"]
    async with A2aHttpEndpoint(harness, harness.token()) as endpoint:
        extended = await endpoint.client.get_extended_agent_card(
            a2a.GetExtendedAgentCardRequest(), context=endpoint.context
        )
    assert [skill.id for skill in extended.skills] == ["ask", "deploy"]


async def test_the_same_message_twice_is_one_task(harness: Harness) -> None:
    request = message("Who brought what?")
    other = message("Something else")
    other.message.message_id = request.message.message_id
    async with A2aJsonRpcEndpoint(harness, harness.token()) as endpoint:
        first = await sent(endpoint, request)
        assert (await sent(endpoint, request)).id == first.id
        assert await refused(endpoint, other) is InvalidParamsError
    async with A2aJsonRpcEndpoint(harness, harness.token("grace")) as endpoint:
        assert (await sent(endpoint, request)).id != first.id


@by_every_binding
async def test_messages_that_are_no_questions_are_refused(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    nothing, empty, file, large, agent = (message("hi") for _ in range(5))
    del nothing.message.parts[:]
    empty.message.parts[0].CopyFrom(a2a.Part(text="  "))
    file.message.parts.add(raw=b"\x00" * 10, filename="a.bin")
    large.message.parts[0].text = "x" * 40_000
    agent.message.role = a2a.ROLE_AGENT
    many = message("hi")
    many.message.parts.extend([a2a.Part(text="more")] * 100)
    long_id = message("hi", context_id="c" * 5000)
    push = message("hi")
    push.configuration.task_push_notification_config.url = "https://example.org/hook"
    modes = message("hi")
    modes.configuration.accepted_output_modes.append("image/png")
    async with kind(harness, harness.token()) as endpoint:
        for request in (nothing, empty, large, agent, many, long_id):
            assert await refused(endpoint, request) is InvalidParamsError
        assert await refused(endpoint, file) is ContentTypeNotSupportedError
        assert await refused(endpoint, modes) is ContentTypeNotSupportedError
        assert await refused(endpoint, push) is PushNotificationNotSupportedError
        assert not harness.gateway.planner.requests, "nothing of it was asked"


async def test_tasks_that_are_not_the_callers_are_not_found(harness: Harness) -> None:
    async with A2aJsonRpcEndpoint(harness, harness.token("ada")) as endpoint:
        hers = await sent(endpoint, message("Who brought what?"))
    async with A2aJsonRpcEndpoint(harness, harness.token("mallory")) as endpoint:
        for task_id in (hers.id, str(uuid4()), "no-id", "x" * 500, "\u202e"):
            assert await refused(endpoint, message("yes", task_id=task_id)) is TaskNotFoundError
        reference = message("And then?", reference_task_ids=[hers.id])
        assert await refused(endpoint, reference) is TaskNotFoundError
        with pytest.raises(TaskNotFoundError):
            async for _ in endpoint.client.subscribe(
                a2a.SubscribeToTaskRequest(id=hers.id), context=endpoint.context
            ):
                pass
        listed = await endpoint.client.list_tasks(a2a.ListTasksRequest(), context=endpoint.context)
        assert not listed.tasks


async def test_a_task_that_has_ended_takes_no_more_messages(harness: Harness) -> None:
    async with A2aJsonRpcEndpoint(harness, harness.token()) as endpoint:
        ended = await sent(endpoint, message("Who brought what?"))
        more = message("more", task_id=ended.id)
        assert await refused(endpoint, more) is UnsupportedOperationError
        more.message.context_id = "of another one"
        assert await refused(endpoint, more) is InvalidParamsError
        with pytest.raises(TaskNotCancelableError):
            await endpoint.client.cancel_task(
                a2a.CancelTaskRequest(id=ended.id), context=endpoint.context
            )
        with pytest.raises(UnsupportedOperationError):
            async for _ in endpoint.client.subscribe(
                a2a.SubscribeToTaskRequest(id=ended.id), context=endpoint.context
            ):
                pass
        following = await sent(endpoint, message("And?", context_id=ended.context_id))
        assert following.context_id == ended.context_id
        assert following.id != ended.id


async def test_data_decides_the_approval_that_it_names(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    async with A2aJsonRpcEndpoint(harness, harness.token()) as endpoint:
        waiting = await sent(endpoint, message("Put it into production"))
        asked = MessageToDict(waiting.status.message.parts[1].data)
        assert asked["display"]["actions"][0]["tool"] == "trigger_deployment"
        reply = message("", task_id=waiting.id)
        for wrong in ({}, {"decision": "maybe"}, {"decision": "approve", "approval_id": "other"}):
            reply.message.message_id = str(uuid4())
            reply.message.parts[0].CopyFrom(a2a.Part(data=ParseDict(wrong, Value())))
            assert await refused(endpoint, reply) is InvalidParamsError
        assert not harness.agent.landed
        decision = {"decision": "approve", "approval_id": asked["approval_id"]}
        reply.message.parts[0].CopyFrom(a2a.Part(data=ParseDict(decision, Value())))
        assert seen_of(await sent(endpoint, reply)).state is State.ANSWERED
    assert harness.agent.landed == {DEPLOYMENT: 1}


async def test_a_mere_yes_approves_no_later_proposal(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    async with A2aJsonRpcEndpoint(harness, harness.token()) as endpoint:
        waiting = await sent(endpoint, message("Put it into production"))
        first = waiting.status.message.message_id
        again = await sent(endpoint, message("yes, but to staging first", task_id=waiting.id))
        assert again.status.state == a2a.TASK_STATE_INPUT_REQUIRED
        second = again.status.message.message_id
        assert second != first
        assert f"yes {second}" in again.status.message.parts[0].text
        assert await refused(endpoint, message("yes", task_id=waiting.id)) is InvalidParamsError
        assert not harness.agent.landed
        ended = await sent(endpoint, message(f"yes {second}", task_id=waiting.id))
        assert ended.status.state == a2a.TASK_STATE_COMPLETED
    assert sum(harness.agent.landed.values()) == 1


async def test_other_versions_and_anonymous_callers_are_refused(harness: Harness) -> None:
    bearer = f"Bearer {harness.token()}"
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    async with httpx.AsyncClient(
        base_url=harness.rest_url, headers={"Authorization": bearer}
    ) as http:
        for version, spoken in (("1.3", True), ("0.3", False), ("", False)):
            headers = {"A2A-Version": version} if version else {}
            plain = await http.get("/a2a/v1/tasks", headers=headers)
            rpc = (await http.post("/a2a", json=call, headers=headers)).json()
            assert (plain.status_code == 200, "result" in rpc) == (spoken, spoken)
            if not spoken:
                (info,) = plain.json()["error"]["details"]
                assert info["reason"] == "VERSION_NOT_SUPPORTED"
                assert rpc["error"]["code"] == -32009
    assert harness.protocols is not None
    async with grpc.aio.insecure_channel(harness.protocols.a2a_address) as channel:
        for credential, version, code in (
            (bearer, "0.3", grpc.StatusCode.FAILED_PRECONDITION),
            ("Bearer forged", "1.0", grpc.StatusCode.UNAUTHENTICATED),
            ("", "1.0", grpc.StatusCode.UNAUTHENTICATED),
        ):
            given = [("a2a-version", version)]
            given += [("authorization", credential)] if credential else []
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await A2AServiceStub(channel).ListTasks(a2a.ListTasksRequest(), metadata=given)
            assert refusal.value.code() == code


async def test_bodies_over_http_have_the_type_of_the_protocol(harness: Harness) -> None:
    headers = {
        "Authorization": f"Bearer {harness.token()}",
        "A2A-Version": "1.0",
        "Content-Type": "application/a2a+json",
    }
    body = MessageToDict(message("Who brought what?"))
    async with httpx.AsyncClient(base_url=harness.rest_url, headers=headers, timeout=120) as http:
        answer = await http.post("/a2a/v1/message:send", json=body)
        garbage = await http.post("/a2a/v1/message:send", json={"message": {"parts": 3}})
    assert answer.headers["Content-Type"] == "application/a2a+json"
    assert answer.json()["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert garbage.status_code == 400


@pytest.mark.parametrize("page", ["docs/clients.md", "docs/reference/a2a.md"])
async def test_the_lines_of_the_pages_ask(harness: Harness, page: str) -> None:
    text = (Path(__file__).parents[3] / page).read_text()
    found = re.search(r"```python\n(headers = .*?)```", text, re.DOTALL)
    assert found is not None
    lines = found[1].replace("http://127.0.0.1:8000", harness.rest_url)
    code = compile(lines, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {
        "httpx": httpx,
        "key": harness.token(),
        "ClientConfig": ClientConfig,
        "create_client": create_client,
        "new_text_message": new_text_message,
        "Role": a2a.Role,
        "SendMessageRequest": a2a.SendMessageRequest,
    }
    try:
        await eval(code, names)
    finally:
        await names["config"].httpx_client.aclose()
    last = names["updates"][-1].status_update.status
    assert last.state == a2a.TASK_STATE_COMPLETED


async def test_a_stream_goes_on_over_a_kill_of_the_gateway(harness: Harness) -> None:
    harness.gateway.composer.release = asyncio.Event()
    following = Following()
    killed = False
    async with A2aGrpcEndpoint(harness, harness.token()) as endpoint:
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


async def test_a_subscriber_sees_what_was_decided_elsewhere(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    following = Following()
    async with (
        A2aJsonRpcEndpoint(harness, harness.token()) as endpoint,
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


async def test_another_replica_knows_every_task(harness: Harness) -> None:
    headers = {"Authorization": f"Bearer {harness.token()}", "A2A-Version": "1.0"}
    async with A2aHttpEndpoint(harness, harness.token()) as endpoint:
        task_id = (await endpoint.ask("Who brought what?")).handle
    async with (
        another_replica(harness) as url,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as http,
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
