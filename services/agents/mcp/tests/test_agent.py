import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bos.agent.v1 import AgentInput, SideEffectClass
from bos.common.v1 import SourceType
from bos_chassis.values import table_rows, to_value
from bos_mcp.service import serve
from bos_mcp.settings import McpSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.fixtures.agent_harness import AWAITING, FAILED, SUCCEEDED
from bos_testkit.processes import free_port, is_dead
from bos_testkit.waiting import eventually

from .conftest import NAME, NETWORKS, answered, chosen, over_http, specialist
from .notes_server import PIXEL, build

READ, WRITE = "What does the note plan say?", "Write the note todo"
READING = [
    chosen(READ, "read_note", name="plan"),
    answered(READ, "Pumps are due on Friday", "The plan says that pumps are due on Friday."),
]


@pytest.fixture(params=["program", "endpoint"])
def server(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.getfixturevalue(request.param)


async def test_card_is_that_of_the_servers_tools(endpoint: dict[str, Any]) -> None:
    async with specialist(
        {**endpoint, "description": "Keeps notes.", "deny": ["exit_now"]}
    ) as notes:
        card = await notes.card()
    tools = {tool.name: tool for tool in card.tools}
    assert card.name == "notes"
    assert card.description.startswith("Keeps notes. Tools: read_note")
    assert "exit_now" not in tools
    read, write, pin = tools["read_note"], tools["write_note"], tools["pin_note"]
    assert read.description == "As the server describes it: “Read a note by its name.”"
    assert list(read.input_schema["required"]) == ["name"]
    assert not read.requires_approval
    assert read.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_NONE
    assert write.requires_approval
    assert write.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE
    assert pin.requires_approval
    assert pin.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT


async def test_model_chooses_a_tool_and_answers(server: dict[str, Any]) -> None:
    async with specialist(server, READING) as notes:
        outcome = await notes.ask(READ)
    result = outcome.result
    assert result.status == SUCCEEDED, result.error
    assert result.answer == "The plan says that pumps are due on Friday."
    assert outcome.data["text"] == "Pumps are due on Friday."
    assert outcome.data["calls"] == [{"tool": "read_note", "arguments": {"name": "plan"}}]
    assert result.tainted
    (source,) = result.sources
    assert source.type == SourceType.SOURCE_TYPE_API
    assert source.title == "notes: read_note"
    assert source.excerpt == "Pumps are due on Friday."


async def test_write_is_made_once_after_approval(endpoint: dict[str, Any], folder: Path) -> None:
    replies = [chosen(WRITE, "write_note", name="todo", text="Call Ravi.")]
    async with specialist(endpoint, replies) as notes:
        proposed = await notes.ask(WRITE, tools=["read_note", "write_note"])
        assert proposed.result.status == AWAITING, proposed.result.error
        assert proposed.arguments.pop("tool_definition").startswith("sha256:")
        assert proposed.action.summary == 'write_note(name="todo", text="Call Ravi.")'
        assert proposed.action.tainted
        assert not (folder / "todo.txt").exists()
        done = await notes.ask(WRITE, tools=["read_note", "write_note"], approved=proposed.action)
    assert done.result.status == SUCCEEDED, done.result.error
    assert (folder / "todo.txt").read_text() == "Call Ravi."
    (performed,) = done.result.performed_actions
    assert not performed.outcome_unknown
    assert done.data["text"] == "Wrote todo."


async def test_unlisted_write_is_not_offered_to_the_model(endpoint: dict[str, Any]) -> None:
    replies = [chosen(WRITE, "write_note", name="todo", text="Call Ravi.")]
    async with specialist({**endpoint, "max_calls": 1}, replies) as notes:
        refused = await notes.ask(WRITE)
    assert refused.result.status == FAILED
    assert refused.result.error.type == "PlanningDeclined"
    assert "write_note (changes" not in notes.model.requests[0].prompt


async def test_given_call_needs_no_model(endpoint: dict[str, Any]) -> None:
    async with specialist(endpoint) as notes:
        outcome = await notes.ask(tool="list_notes")
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    assert table_rows(outcome.result.table) == [{"name": "plan", "bytes": 24}]
    assert outcome.result.answer == "list_notes returned one row."


async def test_wrong_arguments_do_not_reach_the_server(endpoint: dict[str, Any]) -> None:
    replies = [
        chosen(READ, "read_note", nome="plan"),
        chosen(READ, "read_note", after="Wrong arguments", name="plan"),
        answered(READ, "Pumps are due", "Pumps are due on Friday."),
    ]
    async with specialist(endpoint, replies) as notes:
        outcome = await notes.ask(READ)
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    assert outcome.result.usage.api_calls == 1
    assert "read_note: 'name' is a required property" in notes.model.requests[1].prompt


async def test_error_of_a_tool_is_a_failed_step_in_plain_text(endpoint: dict[str, Any]) -> None:
    async with specialist(endpoint) as notes:
        outcome = await notes.ask(tool="fail")
    assert outcome.result.status == FAILED
    assert outcome.result.error.type == "ToolError"
    said = "The tool fail reports an error: No note gone"
    assert outcome.result.error.message.startswith(said)
    assert "<b>" not in outcome.result.error.message
    assert outcome.result.tainted


async def test_after_an_error_of_the_planned_call_the_model_goes_on(
    endpoint: dict[str, Any],
) -> None:
    replies = [
        chosen(READ, "read_note", after="reports an error", name="plan"),
        answered(READ, "Pumps are due", "Pumps are due on Friday."),
    ]
    async with specialist(endpoint, replies) as notes:
        outcome = await notes.ask(READ, "read_note", {"name": "gone"})
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    assert outcome.result.answer == "Pumps are due on Friday."


async def test_calls_of_a_step_have_a_limit(endpoint: dict[str, Any]) -> None:
    replies = [READING[0], chosen(READ, "list_notes", after="Pumps are due")]
    async with specialist({**endpoint, "max_calls": 2}, replies) as notes:
        outcome = await notes.ask(READ)
    assert outcome.result.usage.api_calls == 2
    assert outcome.result.answer == "list_notes returned one row."


async def test_numbers_that_no_result_holds_are_not_passed_on(endpoint: dict[str, Any]) -> None:
    replies = [READING[0], answered(READ, "Pumps are due", "Pumps cost 4711 euros.")]
    async with specialist(endpoint, replies) as notes:
        outcome = await notes.ask(READ)
    assert outcome.result.answer == "Pumps are due on Friday."


async def test_pictures_and_links_come_as_files_and_text(endpoint: dict[str, Any]) -> None:
    async with specialist(endpoint) as notes:
        outcome = await notes.ask(tool="picture")
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    assert outcome.files == {"picture-1.png": ("image/png", PIXEL)}
    assert outcome.data["files"] == ["picture-1.png"]
    text = outcome.data["text"]
    assert text == "One pixel.\n\nInner text.\n\nThe manual: https://example.com/manual"


async def test_call_without_an_answer_ends_at_its_time_limit(server: dict[str, Any]) -> None:
    async with specialist({**server, "call_timeout_s": 1}) as notes:
        outcome = await notes.ask(tool="wait_indefinitely")
        again = await notes.ask(tool="list_notes")
    assert outcome.result.status == FAILED
    assert outcome.result.error.type == "ToolUnavailable"
    assert outcome.result.error.message.endswith("did not answer in time.")
    assert again.result.status == SUCCEEDED


async def test_operator_decides_which_tools_need_approval(endpoint: dict[str, Any]) -> None:
    doubted = {**endpoint, "trust_annotations": False, "reads": ["list_notes"]}
    async with specialist(doubted) as notes:
        tools = {tool.name: tool.requires_approval for tool in (await notes.card()).tools}
    assert tools["read_note"]
    assert not tools["list_notes"]
    async with specialist({**endpoint, "writes": ["read_note"]}) as notes:
        tools = {tool.name: tool.requires_approval for tool in (await notes.card()).tools}
    assert tools["read_note"]
    assert not tools["list_notes"]


async def test_environment_is_set(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-bos")
    env = {"PATH": "/usr/bin:/bin", "NOTES_KEY": "n-1"}
    async with specialist({**program, "env": env}) as notes:
        outcome = await notes.ask(tool="environment")
    seen = outcome.data["structured"]
    assert {name: seen.get(name) for name in env} == env
    assert {*seen} <= {*env, "LC_CTYPE", "PWD"}


async def test_program_and_its_children_end_with_the_agent(program: dict[str, Any]) -> None:
    async with specialist(program) as notes:
        outcome = await notes.ask(tool="start_child")
        child = int(outcome.data["structured"]["result"])
        assert not is_dead(child)
    await eventually(lambda: is_dead(child), within_s=60)


async def test_program_that_ends_is_away_and_is_started_again(program: dict[str, Any]) -> None:
    async with specialist(program, max_backoff_s=0.1) as notes:
        gone = await notes.ask(tool="exit_now")
        assert gone.result.status == FAILED
        assert gone.result.error.type == "ToolUnavailable"
        await notes.is_there()
        outcome = await notes.ask(tool="list_notes")
    assert outcome.result.status == SUCCEEDED, outcome.result.error


async def test_server_that_is_away_makes_the_agent_unavailable() -> None:
    server = {"url": "http://127.0.0.1:9/mcp", "networks": NETWORKS}
    async with specialist(server) as notes:
        why = await notes.away()
        outcome = await notes.ask(tool="list_notes")
    assert why.startswith("The MCP server http://127.0.0.1:9 cannot be called.")
    assert outcome.result.status == FAILED
    assert outcome.result.error.retryable


async def test_new_tools_of_a_server_come_onto_the_card(folder: Path) -> None:
    server = build(folder)
    for name in ("fail", "picture", "wait_indefinitely", "environment", "start_child", "exit_now"):
        server.remove_tool(name)
    known = ("read_note", "list_notes", "write_note", "pin_note")
    async with over_http(server) as url:
        settings = {"url": url, "networks": NETWORKS}
        async with specialist(settings, refresh_s=1) as notes:
            await notes.offers(*known)
            server.add_tool(_count, "countNotes", description="Count them.")
            await notes.offers(*known, "count_notes")
            server.remove_tool("read_note")
            await notes.offers(*known[1:], "count_notes")


async def test_server_that_was_restarted_is_found_again_by_itself(folder: Path) -> None:
    port = free_port()
    async with AsyncExitStack() as first:
        url = await first.enter_async_context(over_http(build(folder), port=port))
        settings = {"url": url, "networks": NETWORKS}
        async with specialist(settings, refresh_s=1, max_backoff_s=0.2) as notes:
            assert not await notes.away()
            await first.aclose()
            await notes.is_away()
            async with over_http(build(folder), port=port):
                await notes.is_there()
                outcome = await notes.ask(tool="list_notes")
    assert outcome.result.status == SUCCEEDED, outcome.result.error


ANNOUNCING = """
import json, sys
tools = [{"name": "grow", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
def send(**fields):
    print(json.dumps({"jsonrpc": "2.0", **fields}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message["method"], message.get("params", {})
    if method == "initialize":
        info = {"name": "announcing", "version": "1"}
        sent = {"protocolVersion": params["protocolVersion"], "serverInfo": info}
        send(id=id, result={**sent, "capabilities": {"tools": {"listChanged": True}}})
    elif method == "tools/list":
        send(id=id, result={"tools": tools})
    elif method == "tools/call":
        tools.append({**tools[0], "name": f"grown_{len(tools)}"})
        send(method="notifications/tools/list_changed")
        send(id=id, result={"content": [{"type": "text", "text": "grew"}]})
    elif id is not None:
        send(id=id, error={"code": -32601, "message": "no such method"})
"""


async def test_change_that_a_server_announces_is_noticed_at_once() -> None:
    async with specialist({"command": [sys.executable, "-c", ANNOUNCING]}) as found:
        await found.offers("grow")
        outcome = await found.ask(tool="grow")
        assert outcome.result.status == SUCCEEDED, outcome.result.error
        await found.offers("grow", "grown_1")


def _count() -> int:
    return 1


PROPOSING = AgentInput(
    task="Write the note mark",
    tools=["write_note"],
    tool_name="write_note",
    sub_task_input={"name": to_value("mark"), "text": to_value("x")},
)


@pytest.fixture
async def subject(folder: Path) -> AsyncIterator[Subject]:
    mark = folder / "mark.txt"
    async with over_http(build(folder)) as url:
        servers = {NAME: {"url": url, "networks": NETWORKS}}
        async with agent_subject(
            *(NAME, serve, McpSettings, READING, AgentInput(task=READ)),
            package="mcp",
            servers=servers,
            environment={"BOS_MCP_SERVERS": json.dumps(servers)},
            proposing=PROPOSING,
            # Each performed call adds one character.
            performed=lambda: mark.stat().st_size if mark.exists() else 0,
        ) as subject:
            yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
