"""Deciding by the client, by command, and in the middle of a question at a terminal."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
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
)
from bos_errors import AlreadyExists, NotFound
from bos_testkit.scripted_gateway import RUN_ID, Gateway, story

from .commands import at_terminal, bos, serving

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


@pytest.fixture
async def gateway() -> AsyncIterator[AskingGateway]:
    gateway = AskingGateway()
    async with serving(gateway, gateway.desk) as gateway.address:
        yield gateway


async def test_list_shows_pending_requests_by_default(gateway: AskingGateway) -> None:
    done = await bos(gateway, "approvals", "list")
    assert done.code == 0
    for part in ("ap-1", ACTION.summary, "bos approvals list --status pending --page more"):
        assert part in done.out
    done = await bos(gateway, "approvals", "list", "--status", "all", "--json")
    assert json.loads(done.out)["approvals"][0]["approval_id"] == "ap-1"
    assert gateway.desk.listed == [ApprovalStatus.APPROVAL_STATUS_PENDING, 0]


async def test_show_prints_arguments_without_control_characters(gateway: AskingGateway) -> None:
    out = (await bos(gateway, "approvals", "show", "ap-1")).out
    assert "body (text, 2 lines)\n      1 | Dear Ada,\n      2 | \\u{1B}[2Jyours\n" in out
    assert "Tell\\u{1B}[2J Ada\n" in out
    assert "\x1b" not in out
    assert "it is unknown" not in out
    gateway.desk.approval.kind = ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN
    out = (await bos(gateway, "approvals", "show", "ap-1")).out
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
    done = await bos(gateway, "approvals", *arguments)
    assert done.code == 0
    assert "Request ap-1" in done.out
    done = await bos(gateway, "approvals", *arguments)
    assert done.code == 2
    assert "closed already" in done.err
    assert gateway.desk.responses == [response]


@pytest.mark.process
@pytest.mark.parametrize(
    ("typed", "responses"),
    [
        ("y", [(APPROVE, "")]),
        ("No", [(DENY, "")]),
        ("to Eve instead", [(APPROVE, "to Eve instead")]),
        (None, []),  # decided elsewhere, which ends the question
    ],
)
async def test_question_at_a_terminal_asks_for_the_decision(
    gateway: AskingGateway, typed: str | None, responses: list[tuple[int, str]]
) -> None:
    asked: list[str] = []

    def answer(shown: str) -> str | None:
        if "Approve?" not in shown or asked:
            return None
        asked.append(shown)
        if typed is None:
            gateway.desk.decided.set()
        return typed

    done = await at_terminal(gateway, "ask", "Who leads?", answer=answer)
    assert done.code == 0
    assert gateway.desk.responses == responses
    assert "Dear Ada," in done.out
    assert "Acme leads" in done.out
