"""Deciding by the client, by command, and in the middle of a question at a terminal."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bos.agent.v1 import ProposedAction
from bos.common.v1 import Value
from bos.gateway.v1 import (
    Approval,
    ApprovalDecision,
    ApprovalDisplay,
    ApprovalKind,
    ApprovalServiceServicer,
    ApprovalStatus,
    GetApprovalResponse,
    ListApprovalsResponse,
    RespondApprovalResponse,
    RunEvent,
    add_ApprovalServiceServicer_to_server,
    add_OrchestratorServiceServicer_to_server,
)
from bos_chassis.auth.callers import StaticKey
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_errors import AlreadyExists, NotFound
from bos_errors import AlreadyExists as Decided
from bos_testkit.scripted_gateway import KEY, RUN_ID, Gateway, story

pytestmark = pytest.mark.process

BOS = Path(sys.executable).with_name("bos")
APPROVE = ApprovalDecision.APPROVAL_DECISION_APPROVE
DENY = ApprovalDecision.APPROVAL_DECISION_DENY
ACTION = ProposedAction(tool="send_email", summary="Send “Offer” to ada@example.com")
ACTION.arguments.fields["body"].CopyFrom(Value(string_value="Dear Ada,\n\x1b[2Jyours"))

DISPLAY = ApprovalDisplay(task=["Tell\x1b[2J Ada"])
DISPLAY.actions.add(title=ACTION.summary, tool=ACTION.tool).arguments.add(
    label="body", type="text, 2 lines", lines=["1 | Dear Ada,", "2 | \x1b[2Jyours"]
)


def requested() -> Approval:
    return Approval(
        approval_id="ap-1",
        run_id=RUN_ID,
        step_id="mail",
        agent_name="mail",
        actions=[ACTION],
        display=DISPLAY,
        status=ApprovalStatus.APPROVAL_STATUS_PENDING,
    )


@dataclass
class Desk(ApprovalServiceServicer):
    """Holds one request."""

    approval: Approval = field(default_factory=requested)
    responses: list[tuple[int, str]] = field(default_factory=list)
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    listed: list[int] = field(default_factory=list)

    async def ListApprovals(self, request: Any, context: Any) -> ListApprovalsResponse:
        self.listed.append(request.status)
        return ListApprovalsResponse(approvals=[self.approval], next_page_token="more")

    async def GetApproval(self, request: Any, context: Any) -> GetApprovalResponse:
        if request.approval_id != self.approval.approval_id:
            raise NotFound("There is no such approval.")
        return GetApprovalResponse(approval=self.approval)

    async def RespondApproval(self, request: Any, context: Any) -> RespondApprovalResponse:
        if self.responses:
            raise AlreadyExists("This request is closed already.", reason="APPROVAL_RESOLVED")
        self.responses.append((request.decision, request.instructions))
        approved = request.decision == APPROVE
        self.approval.status = (
            ApprovalStatus.APPROVAL_STATUS_APPROVED
            if approved
            else ApprovalStatus.APPROVAL_STATUS_DENIED
        )
        self.decided.set()
        return RespondApprovalResponse(approval=self.approval)


@dataclass
class AskingGateway(Gateway):
    """A gateway with a run that waits for the desk's decision before it ends."""

    desk: Desk = field(default_factory=Desk)

    async def _stream(self, after: int, offset: int) -> AsyncIterator[RunEvent]:
        *events, end = story()
        for event in events:
            yield event
        asks = RunEvent(run_id=RUN_ID, sequence=end.sequence + 1)
        asks.approval_requested.approval.CopyFrom(requested())
        yield asks
        await self.desk.decided.wait()
        resolved = RunEvent(run_id=RUN_ID, sequence=end.sequence + 2)
        resolved.approval_resolved.approval.CopyFrom(self.desk.approval)
        yield resolved
        end.sequence += 3
        yield end


@asynccontextmanager
async def asking_gateway() -> AsyncIterator[AskingGateway]:
    gateway = AskingGateway()
    served = [
        Servicer(
            gateway,
            add_OrchestratorServiceServicer_to_server,
            "bos.gateway.v1.OrchestratorService",
        ),
        Servicer(
            gateway.desk, add_ApprovalServiceServicer_to_server, "bos.gateway.v1.ApprovalService"
        ),
    ]
    async with grpc_server(
        ServerSettings.load(grace_s=0.0),
        served,
        telemetry=Telemetry.for_tests("gateway"),
        auth=StaticKey(KEY),
    ) as server:
        gateway.address = server.address
        yield gateway


@pytest.fixture
async def gateway() -> AsyncIterator[AskingGateway]:
    async with asking_gateway() as opened:
        yield opened


async def bos(gateway: AskingGateway, *arguments: str) -> tuple[int, str, str]:
    environment = {"PATH": os.environ["PATH"], "BOS_TARGET": gateway.address, "BOS_API_KEY": KEY}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        BOS, *arguments, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_client_lists_decides_and_hears_of_another_decision(gateway: AskingGateway) -> None:
    async with BosClient(gateway.address, api_key=KEY) as client:
        (listed,) = (await client.list_approvals()).approvals
        assert listed == await client.get_approval("ap-1")
        approved = await client.approve("ap-1", "and bcc me")
        assert approved.status == ApprovalStatus.APPROVAL_STATUS_APPROVED
        with pytest.raises(Decided) as caught:
            await client.deny("ap-1")
    assert caught.value.reason == "APPROVAL_RESOLVED"
    assert gateway.desk.responses == [(APPROVE, "and bcc me")]


async def test_list_shows_pending_requests_by_default(gateway: AskingGateway) -> None:
    code, out, _ = await bos(gateway, "approvals", "list")
    assert code == 0
    assert "ap-1" in out
    assert ACTION.summary in out
    assert "bos approvals list --status pending --page more" in out
    code, out, _ = await bos(gateway, "approvals", "list", "--status", "all", "--json")
    assert json.loads(out)["approvals"][0]["approval_id"] == "ap-1"
    assert gateway.desk.listed == [ApprovalStatus.APPROVAL_STATUS_PENDING, 0]


async def test_show_prints_exact_arguments_without_control_characters(
    gateway: AskingGateway,
) -> None:
    code, out, _ = await bos(gateway, "approvals", "show", "ap-1")
    assert code == 0
    assert "body (text, 2 lines)\n      1 | Dear Ada,\n      2 | \\u{1B}[2Jyours\n" in out
    assert "Tell\\u{1B}[2J Ada\n" in out
    assert "\x1b" not in out
    assert "it is unknown" not in out


async def test_show_warns_that_the_action_may_have_been_performed_before(
    gateway: AskingGateway,
) -> None:
    gateway.desk.approval.kind = ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN
    _, out, _ = await bos(gateway, "approvals", "show", "ap-1")
    assert "it is unknown whether it was done: yes does it again" in " ".join(out.split())


@pytest.mark.parametrize(
    ("arguments", "response"),
    [
        (("approve", "ap-1"), (APPROVE, "")),
        (("approve", "ap-1", "--instructions", "to Eve"), (APPROVE, "to Eve")),
        (("deny", "ap-1"), (DENY, "")),
    ],
)
async def test_commands_decide_once(
    gateway: AskingGateway, arguments: tuple[str, ...], response: tuple[int, str]
) -> None:
    code, out, _ = await bos(gateway, "approvals", *arguments)
    assert code == 0
    assert "Request ap-1" in out
    code, _, err = await bos(gateway, "approvals", *arguments)
    assert code == 2
    assert "closed already" in err
    assert gateway.desk.responses == [response]


@pytest.mark.parametrize(
    ("typed", "response"),
    [("y", (APPROVE, "")), ("No", (DENY, "")), ("to Eve instead", (APPROVE, "to Eve instead"))],
)
async def test_question_at_a_terminal_asks_for_the_decision(
    gateway: AskingGateway, typed: str, response: tuple[int, str]
) -> None:
    code, shown = await at_a_terminal(gateway, typed)
    assert code == 0
    assert gateway.desk.responses == [response]
    assert "Dear Ada," in shown


async def test_what_is_decided_elsewhere_is_not_waited_for(gateway: AskingGateway) -> None:
    code, shown = await at_a_terminal(gateway, None)
    assert code == 0
    assert gateway.desk.responses == []
    assert "Acme leads" in shown


async def at_a_terminal(gateway: AskingGateway, typed: str | None) -> tuple[int, str]:
    """Ask a question at a terminal, and type when asked; or have it decided elsewhere."""
    parent, child = pty.openpty()
    environment = {
        **{"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8"},
        **{"BOS_TARGET": gateway.address, "BOS_API_KEY": KEY},
    }
    process = await asyncio.create_subprocess_exec(
        BOS, "ask", "Who leads?", env=environment, stdin=child, stdout=child, stderr=child
    )
    os.close(child)
    shown, answered = b"", False
    while True:
        try:
            read = await asyncio.to_thread(os.read, parent, 4096)
        except OSError:  # how the end of a terminal looks
            break
        if not read:
            break
        shown += read
        if b"Approve?" in shown and not answered:
            answered = True
            if typed is None:
                gateway.desk.decided.set()
            else:
                os.write(parent, typed.encode() + b"\n")
    os.close(parent)
    return await process.wait(), shown.decode(errors="replace")
