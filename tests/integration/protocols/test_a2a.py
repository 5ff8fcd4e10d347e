"""What A2A says beyond the common cases: cards, ids, versions, refusals, hostile messages."""

import ast
import asyncio
import re
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

from .a2a_endpoint import (
    A2aEndpoint,
    A2aGrpcEndpoint,
    A2aHttpEndpoint,
    A2aJsonRpcEndpoint,
    message,
    seen_of,
)
from .endpoint import State
from .harness import ANSWER, DEPLOYMENT, Harness

pytestmark = [pytest.mark.rest, pytest.mark.process]

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


@by_every_binding
async def test_the_extended_card_names_the_agents_of_the_caller(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    async with kind(harness, harness.token()) as endpoint:
        card = await endpoint.client.get_extended_agent_card(
            a2a.GetExtendedAgentCardRequest(), context=endpoint.context
        )
    assert [skill.id for skill in card.skills] == ["ask", "deploy"]


@by_every_binding
async def test_the_same_message_twice_is_one_task(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    request = message("Who brought what?")
    other = message("Something else")
    other.message.message_id = request.message.message_id
    async with kind(harness, harness.token()) as endpoint:
        first = await sent(endpoint, request)
        assert (await sent(endpoint, request)).id == first.id
        assert await refused(endpoint, other) is InvalidParamsError
    async with kind(harness, harness.token("grace")) as endpoint:
        assert (await sent(endpoint, request)).id != first.id


@by_every_binding
async def test_messages_that_are_no_questions_are_refused_in_words_of_the_protocol(
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


@by_every_binding
async def test_tasks_that_are_not_the_callers_are_not_found(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    async with kind(harness, harness.token("ada")) as endpoint:
        hers = await sent(endpoint, message("Who brought what?"))
    async with kind(harness, harness.token("mallory")) as endpoint:
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


@by_every_binding
async def test_a_task_that_has_ended_takes_no_more_messages(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    async with kind(harness, harness.token()) as endpoint:
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


@by_every_binding
async def test_tasks_are_listed_with_what_was_asked_for_alone(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    async with kind(harness, harness.token()) as endpoint:
        first, second = [await sent(endpoint, message(text)) for text in ("One?", "Two?")]

        async def listed(**asked: Any) -> a2a.ListTasksResponse:
            return await endpoint.client.list_tasks(
                a2a.ListTasksRequest(**asked), context=endpoint.context
            )

        page = await listed(page_size=1)
        assert [task.id for task in page.tasks] == [second.id]
        assert not page.tasks[0].artifacts
        rest = await listed(page_size=1, page_token=page.next_page_token, include_artifacts=True)
        assert [task.id for task in rest.tasks] == [first.id]
        assert seen_of(rest.tasks[0]).text == ANSWER
        of_one = await listed(context_id=first.context_id, history_length=0)
        assert [task.id for task in of_one.tasks] == [first.id]
        assert not of_one.tasks[0].history
        assert len((await listed(status=a2a.TASK_STATE_COMPLETED)).tasks) == 2
        assert not (await listed(status=a2a.TASK_STATE_FAILED)).tasks
        for wrong in ({"page_size": 101}, {"page_size": 0}, {"page_token": "nonsense"}):
            with pytest.raises(InvalidParamsError):
                await listed(**wrong)


@by_every_binding
async def test_a_client_need_not_wait(harness: Harness, kind: type[A2aEndpoint]) -> None:
    harness.gateway.composer.release = asyncio.Event()
    request = message("Who brought what?")
    request.configuration.return_immediately = True
    async with kind(harness, harness.token()) as endpoint:
        task = await sent(endpoint, request)
        assert task.status.state in (a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING)
        assert task.history[0].message_id == request.message.message_id
        harness.gateway.composer.release.set()
        seen = await endpoint.resume(seen_of(task))
    assert (seen.state, seen.text) == (State.ANSWERED, ANSWER)


@by_every_binding
async def test_data_decides_the_approval_that_it_names(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    harness.plan(DEPLOYMENT)
    async with kind(harness, harness.token()) as endpoint:
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


@by_every_binding
async def test_a_mere_yes_never_approves_what_came_after_the_first_proposal(
    harness: Harness, kind: type[A2aEndpoint]
) -> None:
    harness.plan(DEPLOYMENT)
    async with kind(harness, harness.token()) as endpoint:
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


@by_every_binding
async def test_there_are_no_push_notifications(harness: Harness, kind: type[A2aEndpoint]) -> None:
    async with kind(harness, harness.token()) as endpoint:
        client, context = endpoint.client, endpoint.context
        config = a2a.TaskPushNotificationConfig(task_id="t", url="https://example.org")
        with pytest.raises(PushNotificationNotSupportedError):
            await client.create_task_push_notification_config(config, context=context)
        with pytest.raises(PushNotificationNotSupportedError):
            await client.list_task_push_notification_configs(
                a2a.ListTaskPushNotificationConfigsRequest(task_id="t"), context=context
            )
        with pytest.raises(PushNotificationNotSupportedError):
            await client.get_task_push_notification_config(
                a2a.GetTaskPushNotificationConfigRequest(task_id="t", id="1"), context=context
            )
        with pytest.raises(PushNotificationNotSupportedError):
            await client.delete_task_push_notification_config(
                a2a.DeleteTaskPushNotificationConfigRequest(task_id="t", id="1"), context=context
            )


async def test_only_version_1_is_spoken(harness: Harness) -> None:
    bearer = {"Authorization": f"Bearer {harness.token()}"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
    async with httpx.AsyncClient(base_url=harness.rest_url, headers=bearer) as http:
        for version, spoken in (("1.0", True), ("1.3", True), ("0.3", False), ("", False)):
            headers = {"A2A-Version": version} if version else {}
            plain = await http.get("/a2a/v1/tasks", headers=headers)
            assert (plain.status_code == 200) is spoken
            rpc = (await http.post("/a2a", json=call, headers=headers)).json()
            assert ("result" in rpc) is spoken
            if not spoken:
                (info,) = plain.json()["error"]["details"]
                assert info["reason"] == "VERSION_NOT_SUPPORTED"
                assert rpc["error"]["code"] == -32009
    assert harness.protocols is not None
    async with grpc.aio.insecure_channel(harness.protocols.a2a_address) as channel:
        metadata = (("authorization", bearer["Authorization"]), ("a2a-version", "0.3"))
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await A2AServiceStub(channel).ListTasks(a2a.ListTasksRequest(), metadata=metadata)
    assert refusal.value.code() == grpc.StatusCode.FAILED_PRECONDITION


async def test_anonymous_callers_reach_nothing_over_grpc(harness: Harness) -> None:
    assert harness.protocols is not None
    async with grpc.aio.insecure_channel(harness.protocols.a2a_address) as channel:
        for metadata in ((), (("authorization", "Bearer forged"),)):
            given = (*metadata, ("a2a-version", "1.0"))
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await A2AServiceStub(channel).ListTasks(a2a.ListTasksRequest(), metadata=given)
            assert refusal.value.code() == grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"jsonrpc": "2.0", "id": 1, "method": "Nothing"}, -32601),
        ({"jsonrpc": "1.0", "id": 1, "method": "GetTask"}, -32600),
        ([{"jsonrpc": "2.0", "id": 1, "method": "GetTask"}], -32600),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": []}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": 1}}, -32602),
        ({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}}, -32001),
    ],
)
async def test_calls_by_json_rpc_that_are_none_get_its_codes(
    harness: Harness, body: Any, code: int
) -> None:
    headers = {"Authorization": f"Bearer {harness.token()}", "A2A-Version": "1.0"}
    async with httpx.AsyncClient(base_url=harness.rest_url, headers=headers) as http:
        answer = await http.post("/a2a", json=body)
    assert answer.json()["error"]["code"] == code


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
