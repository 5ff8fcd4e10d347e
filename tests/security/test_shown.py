"""Proposals that look harmless: approvers are shown the real action on every interface.

A hostile agent, a real gateway and the real REST in front of it, called as clients call them.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import aiohttp
import pytest
from gateway_harness.harness import Harness, open_harness
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
    AgentResult,
    ProposedAction,
    SideEffectClass,
    Tool,
)
from bos_agentkit.actions import action_digest
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_client import BosClient
from bos_standalone.rest import find_binary, serve_rest
from bos_testkit.hostile import hostile_texts
from bos_testkit.plans import step

pytestmark = pytest.mark.security

TOOL = Tool(
    name="transfer",
    description="Transfers money.",
    requires_approval=True,
    side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
)
TURNED = "Pay 1 EUR to \u202eeve\u202c\u200b"
SHOWN = r"Pay 1 EUR to \u{202E}eve\u{202C}\u{200B}"
TASK, TASK_SHOWN = "Pay\u2066 it\nnow", [r"Pay\u{2066} it", "now"]


def hostile() -> AgentResult:
    """A proposal with something hidden in its summary, its names and its values."""
    action = ProposedAction(action_id="a", tool=TOOL.name, summary=TURNED, tainted=True)
    fields = action.arguments.fields
    fields["to\u3164"].string_value = TURNED
    fields["amount"].string_value = "1"
    fields["count"].int64_value = 1
    fields["key"].bytes_value = b"\xde\xad"
    for number, case in enumerate(hostile_texts()):
        fields[f"text{number:03}"].CopyFrom(to_value({case.text: case.text}))
    action.side_effect = TOOL.side_effect
    action.digest = action_digest(action.tool, action.arguments)
    return success(
        status=AGENT_EXECUTION_STATUS_AWAITING_APPROVAL,
        answer="",
        proposed_actions=[action],
        task_description=TASK,
    )


@pytest.fixture
async def harness(postgres_dsn: str) -> AsyncIterator[Harness]:
    async with open_harness(postgres_dsn) as opened:
        agent = RawAgent("bank", lambda _: hostile())
        agent.card.tools.append(TOOL)
        await add_raw_agent(opened, agent)
        planned = step("a", "bank")
        planned.tools.append(TOOL.name)
        opened.planner.steps = [planned]
        yield opened


def check(display: Any) -> None:
    """What everybody must be shown, as JSON of ``Approval.display``."""
    assert display["task"] == TASK_SHOWN
    (action,) = display["actions"]
    assert (action["title"], action["tool"]) == (SHOWN, "transfer")
    assert action["notes"] == [
        "rests on content that others wrote",
        "from step a of the agent bank",
        "changes something; cannot be undone",
    ]
    shown = {each["label"]: (each["type"], each.get("lines", [])) for each in action["arguments"]}
    assert shown[r'"to\u{3164}"'] == ("text", [SHOWN])
    assert shown["amount"] == ("text", ["1"])
    assert shown["count"] == ("int64", ["1"])
    kind, lines = shown["key"]
    assert kind.startswith("bytes, 2, sha256:")
    assert lines == ["de ad"]
    for number, case in enumerate(hostile_texts()):
        (line,) = shown[f"text{number:03}"][1]
        assert line.endswith(f" (text): {case.shown}"), case.what


def as_json(message: Message) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


async def first(stream: aiohttp.ClientResponse, name: str) -> Any:
    """The content of the first server-sent event of that name."""
    named = ""
    async with asyncio.timeout(60):
        async for line in stream.content:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                named = value
            elif field == "data" and named == name:
                return json.loads(value)
    raise AssertionError(f"no {name} came")


async def test_a_hostile_proposal_is_shown_as_what_it_is_by_every_way(harness: Harness) -> None:
    binary = find_binary(None)
    assert binary is not None, "build it first: make rest"
    log = Telemetry.for_tests("rest").logger("bos.rest")
    async with (
        harness.gateway(lease_s=15.0, lease_renewal_s=1.0) as gateway,
        serve_rest(
            binary, gateway_target=gateway.server.address, ports=(0,), grace_s=0.2, log=log
        ) as rest,
        BosClient(gateway.server.address) as bos,
        aiohttp.ClientSession(rest.url, read_bufsize=2**20) as http,
    ):
        async with aclosing(bos.ask_stream("Pay?")) as events:
            asked_for = await anext(
                event.approval_requested.approval
                async for event in events
                if event.HasField("approval_requested")
            )
        async with http.get(f"/v1/approvals/{asked_for.approval_id}") as answer:
            over_rest = await answer.json()
        async with http.get("/v1/approvals") as answer:
            listed = (await answer.json())["approvals"]
        async with http.get(f"/v1/runs/{asked_for.run_id}:watch") as stream:
            streamed = await first(stream, "approval_requested")
        async with http.post("/query/stream", json={"question": "Pay again?"}) as stream:
            named = await first(stream, "hitl_required")
        over_grpc = await bos.get_approval(asked_for.approval_id)

    for approval in (asked_for, over_grpc):
        check(as_json(approval)["display"])
    for approval in (over_rest, streamed["approval_requested"]["approval"]):
        check(approval["display"])
    assert named["task_description"] == "\n".join(TASK_SHOWN)
    (entry,) = listed
    assert [action["title"] for action in entry["display"]["actions"]] == [SHOWN]
    assert not entry["display"]["actions"][0].get("arguments")
