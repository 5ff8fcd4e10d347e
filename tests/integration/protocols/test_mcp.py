"""What MCP has beside the common cases: the person's own reply, resources, stdio, metadata."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, InputRequiredResult

from bos_conversation.mcp.following import ANSWER_SO_FAR

from .endpoint import Refused
from .harness import ANSWER, DEPLOYMENT, QUESTION_BACK, ROWS, Harness, another_replica
from .mcp_endpoint import McpEndpoint, text_of

pytestmark = [
    pytest.mark.rest,
    pytest.mark.process,
    pytest.mark.asyncio(loop_scope="module"),
]

APPROVE = ElicitResult(action="accept", content={"decision": "approve"})
DENY = ElicitResult(action="accept", content={"decision": "deny"})
DECLINE = ElicitResult(action="decline")
DISMISS = ElicitResult(action="cancel")
OTHER_FORM = ElicitResult(action="accept", content={"x": "y"})
PRODUCTION = {"question": "Put it into production"}


class Person:
    """Replies to every question in the same way, and keeps what was shown."""

    def __init__(self, reply: ElicitResult) -> None:
        self.reply = reply
        self.shown: list[str] = []

    async def __call__(self, _: Any, asked: ElicitRequestParams) -> ElicitResult:
        self.shown.append(asked.message)
        return self.reply


@asynccontextmanager
async def stdio(
    harness: Harness, person: Person | None = None, *options: str, mode: str = "auto"
) -> AsyncIterator[Client]:
    """A client of the real ``bos mcp``."""
    bos = str(Path(sys.executable).with_name("bos"))
    environment = {"BOS_TARGET": harness.target, "BOS_API_KEY": harness.token()}
    server = StdioServerParameters(command=bos, args=["mcp", *options], env=environment)
    async with Client(server, elicitation_callback=person, mode=mode) as client:
        yield client


@asynccontextmanager
async def at(url: str, harness: Harness, person: Person | None = None) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {harness.token()}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(url, http_client=http), elicitation_callback=person) as found,
    ):
        yield found


def content_of(result: CallToolResult) -> Any:
    assert not result.is_error, text_of(result)
    return result.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_person_approves_by_stdio(harness: Harness, mode: str) -> None:
    harness.plan(DEPLOYMENT)
    person = Person(APPROVE)
    async with stdio(harness, person, mode=mode) as client:
        result = await client.call_tool("ask", PRODUCTION)
    assert ANSWER in content_of(result)["answer"]
    (shown,) = person.shown
    for part in ("trigger_deployment", "shop-web", "1.2"):
        assert part in shown
    assert harness.agent.landed == {DEPLOYMENT: 1}


@pytest.mark.parametrize(
    ("reply", "decides"),
    [(DENY, True), (DECLINE, True), (DISMISS, False), (OTHER_FORM, False)],
    ids=["deny", "decline", "dismissed", "another form"],
)
async def test_what_the_person_does_not_approve_is_not_done(
    harness: Harness, reply: ElicitResult, decides: bool
) -> None:
    harness.plan(DEPLOYMENT)
    endpoint = McpEndpoint(harness, harness.token())
    result = await endpoint.call("ask", PRODUCTION, person=Person(reply))
    content = content_of(result)
    listed = content_of(await endpoint.call("list_approvals", {}))["approvals"]
    pending = [each for each in listed if each["status"] == "APPROVAL_STATUS_PENDING"]
    assert bool(pending) != decides
    assert ("approval" in content) != decides
    assert not harness.agent.landed


async def test_a_model_alone_approves_nothing(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    async with McpEndpoint(harness, harness.token()) as endpoint:
        waiting = await endpoint.ask("Put it into production")
        _, approval_id = waiting.handle
        decision = {"approval_id": approval_id, "decision": "approve"}
        with pytest.raises(Refused, match="The person has to approve this"):
            await endpoint.call("decide_approval", decision)
        with pytest.raises(Refused, match="The person has to approve this"):
            await endpoint.call("decide_approval", {**decision, "instructions": "do it"})
        listed = content_of(await endpoint.call("list_approvals", {}))["approvals"]
    assert [each["status"] for each in listed] == ["APPROVAL_STATUS_PENDING"]
    assert not harness.agent.landed


async def test_the_operator_may_let_tools_approve(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    async with (
        another_replica(harness, mcp_tool_approvals=True) as url,
        at(f"{url}/mcp", harness) as client,
    ):
        waits = content_of(await client.call_tool("ask", PRODUCTION))
        decision = {"approval_id": waits["approval"]["approval_id"], "decision": "approve"}
        content_of(await client.call_tool("decide_approval", decision))
        run = {"run_id": waits["run_id"], "wait_s": 60}
        while "answer" not in (found := content_of(await client.call_tool("get_run", run))):
            pass
    assert ANSWER in found["answer"]
    assert harness.agent.landed == {DEPLOYMENT: 1}


async def test_any_replica_takes_the_persons_reply(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    person = Person(APPROVE)
    async with another_replica(harness) as url, at(f"{url}/mcp", harness, person) as client:
        first = await client.session.call_tool("ask", PRODUCTION, allow_input_required=True)
    assert isinstance(first, InputRequiredResult)
    (key,) = first.input_requests
    async with another_replica(harness) as url, at(f"{url}/mcp", harness, person) as client:
        result = await client.call_tool("ask", PRODUCTION, input_responses={key: APPROVE})
    assert ANSWER in content_of(result)["answer"]
    assert harness.agent.landed == {DEPLOYMENT: 1}


async def test_a_reply_counts_for_the_text_that_was_shown(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    endpoint = McpEndpoint(harness, harness.token())
    waits = content_of(await endpoint.call("ask", PRODUCTION))
    approval_id = waits["approval"]["approval_id"]
    person = Person(DISMISS)
    async with endpoint.client(person) as client:
        result = await client.call_tool(
            "ask",
            PRODUCTION,
            input_responses={f"approval:{approval_id}:{'0' * 32}": APPROVE},
        )
    assert content_of(result)["approval"]["status"] == "APPROVAL_STATUS_PENDING"
    assert len(person.shown) == 1, "it is asked again"
    assert not harness.agent.landed


@pytest.mark.parametrize("content", [{"answer_1": "2026"}, {"other": "2026"}])
async def test_the_person_answers_questions_back(harness: Harness, content: dict[str, Any]) -> None:
    harness.ask_back()
    person = Person(ElicitResult(action="accept", content=content))
    endpoint = McpEndpoint(harness, harness.token())
    result = await endpoint.call("ask", {"question": "Who brought what?"}, person=person)
    assert ANSWER in content_of(result)["answer"]
    (shown,) = person.shown
    assert QUESTION_BACK in shown
    assert "2026" in shown
    (settled,) = harness.gateway.planner.requests[-1].clarifications
    assert settled.reply == "2026"


async def test_clients_of_earlier_versions_learn_what_waits(harness: Harness) -> None:
    harness.plan(DEPLOYMENT)
    person = Person(APPROVE)
    async with McpEndpoint(harness, harness.token()).client(person, mode="legacy") as client:
        result = await client.call_tool("ask", PRODUCTION)
    waits = content_of(result)
    assert waits["approval"]["status"] == "APPROVAL_STATUS_PENDING"
    assert "shop-web" in text_of(result)
    assert not person.shown, "a server without sessions has no connection to ask by"


@pytest.mark.parametrize("way", ["http", "stdio"])
async def test_a_call_outlives_the_gateway_that_is_killed_under_it(
    harness: Harness, way: str
) -> None:
    harness.gateway.composer.release = asyncio.Event()
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def progress(_: float, __: float | None, message: str | None) -> None:
        heard.put_nowait(message or "")

    endpoint = McpEndpoint(harness, harness.token())
    async with stdio(harness) if way == "stdio" else endpoint.client() as client:
        question = {"question": "Who brought what?"}
        call = asyncio.create_task(client.call_tool("ask", question, progress_callback=progress))
        while not (await asyncio.wait_for(heard.get(), 120)).startswith(ANSWER_SO_FAR):
            pass
        await harness.kill_gateway()
        await harness.start_gateway()
        harness.gateway.composer.release.set()
        result = await asyncio.wait_for(call, 120)
    assert content_of(result)["answer"].count(ANSWER) == 1


async def test_sessions_foreign_pages_and_large_bodies_are_refused(harness: Harness) -> None:
    json_body = {"Content-Type": "application/json", "Accept": "application/json"}
    evil = {**json_body, "Origin": "https://evil.example.org"}
    headers = {"Authorization": f"Bearer {harness.token()}"}
    async with httpx2.AsyncClient(base_url=harness.rest_url, headers=headers, timeout=60) as http:
        for verb, more, content, status in (
            ("GET", {"Accept": "text/event-stream"}, b"", 405),
            ("DELETE", {}, b"", 405),
            ("POST", evil, b'{"jsonrpc": "2.0", "method": "ping"}', 403),
            ("POST", json_body, b'{"x": "' + b"y" * 2 * 1024 * 1024 + b'"}', 413),
        ):
            reply = await http.request(verb, "/mcp", headers=more, content=content or None)
            assert reply.status_code == status, (verb, status)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_runs_and_tables_are_resources_of_their_owner(harness: Harness, mode: str) -> None:
    endpoint = McpEndpoint(harness, harness.token())
    result = content_of(await endpoint.call("ask", {"question": "Who brought what?"}))
    uri = f"bos://runs/{result['run_id']}"
    async with endpoint.client(mode=mode) as client:
        listed = await client.list_resources()
        assert [str(each.uri) for each in listed.resources] == [uri]
        run = json.loads((await client.read_resource(uri)).contents[0].text)
        assert run["question"] == "Who brought what?"
        table = json.loads((await client.read_resource(result["table"]["uri"])).contents[0].text)
        assert table["rows"] == ROWS
        with pytest.raises(MCPError, match="no such file"):
            await client.read_resource(f"{uri}/files/{'0' * 64}")
    async with McpEndpoint(harness, harness.token("mallory")).client(mode=mode) as other:
        assert not (await other.list_resources()).resources
        for each in (uri, f"{uri}/table", f"{uri}/files/{'0' * 64}"):
            with pytest.raises(MCPError):
                await other.read_resource(each)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ask", {"question": "x" * 40_000}),
        ("ask", {"question": "x", "continues_run_id": "no-such-run"}),
        ("get_run", {"run_id": "../../etc/passwd"}),
        ("decide_approval", {"approval_id": "x", "decision": "APPROVE ALL"}),
        ("list_runs", {"page_token": "\x00"}),
        ("no_such_tool", {}),
    ],
)
async def test_hostile_arguments_are_refused_without_internals(
    harness: Harness, tool: str, arguments: dict[str, Any]
) -> None:
    with pytest.raises((Refused, MCPError)) as refusal:
        await McpEndpoint(harness, harness.token()).call(tool, arguments)
    text = str(refusal.value)
    assert "Traceback" not in text
    assert "bos_" not in text
    assert len(text) < 2000


async def test_tools_say_what_they_do(harness: Harness) -> None:
    async with McpEndpoint(harness, harness.token()).client() as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        templates = (await client.list_resource_templates()).resource_templates
    reading = {name for name, each in tools.items() if each is not None and each.read_only_hint}
    assert reading == {"list_runs", "get_run", "list_approvals"}
    assert set(tools) - reading == {"ask", "cancel_run", "decide_approval"}
    decides = tools["decide_approval"]
    assert decides is not None
    assert decides.destructive_hint
    assert len(templates) == 3


async def test_anonymous_callers_learn_where_tokens_come_from(harness: Harness) -> None:
    issuer, public = "https://login.example.org", "https://bos.example.org"
    async with httpx2.AsyncClient(base_url=harness.rest_url) as http:
        refused = await http.post("/mcp", json={})
        assert refused.status_code == 401
        where = refused.headers["www-authenticate"].split('"')[1]
        metadata = (await http.get(where)).json()
        assert metadata["resource"] == where.replace("/.well-known/oauth-protected-resource", "")
        assert metadata["bearer_methods_supported"] == ["header"]
        assert "authorization_servers" not in metadata, "none is configured"
        own = {"authorization_servers": [issuer], "public_url": public}
        async with another_replica(harness, **own) as url:
            path = "/.well-known/oauth-protected-resource/mcp"
            metadata = (await http.get(url + path)).json()
    assert metadata["authorization_servers"] == [issuer]
    assert metadata["resource"] == f"{public}/mcp"


async def test_protocols_refuse_callers_without_a_credential(harness: Harness) -> None:
    async with another_replica(harness) as url, Client(f"{url}/mcp") as client:
        result = await client.call_tool("list_runs", {})
    assert result.is_error
    assert result.structured_content["error"]["code"] == "UNAUTHENTICATED"
