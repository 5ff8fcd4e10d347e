"""Tools about runs and approvals that exist."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import Field

from bos.gateway.v1 import ApprovalStatus, RunStatus
from bos_conversation import Decision, approval_shown
from bos_conversation.mcp.asking import Id, Outcome
from bos_conversation.mcp.deciding import Undecided, carry_out, decide_by_person
from bos_conversation.mcp.following import News, follow
from bos_conversation.mcp.results import (
    approval_json,
    ended,
    json_result,
    refused,
    run_json,
    text_result,
    under_way,
    waiting,
)
from bos_errors import PermissionDenied

if TYPE_CHECKING:
    from bos.gateway.v1 import Approval, Run
    from bos_client.client import BosClient
    from bos_conversation.mcp.callers import Callers, Policy

_PAGE = 50
_MAX_PAGES = 10
_RunId = Annotated[str, Field(min_length=1, max_length=64, description="The run")]
_PageToken = Annotated[
    str, Field(max_length=2048, description="next_page_token of the page before")
]
_PageSize = Annotated[int, Field(ge=1, le=_PAGE, description="Most entries")]
_PERSON = (
    "The person has to approve this, and this client cannot ask them. They can in the console, or"
    " by `bos approvals`. Nothing was decided."
)


class Runs:
    """The tools for runs, for the caller of each request."""

    def __init__(self, callers: Callers, policy: Policy) -> None:
        self._callers = callers
        self._policy = policy

    async def list_runs(
        self,
        context: Context[Any, Any],
        page_size: _PageSize = 20,
        page_token: _PageToken = "",
        conversation_id: Annotated[Id, Field(description="Only runs of this conversation")] = "",
    ) -> CallToolResult:
        """List the user's runs, newest first."""
        listed = await self._bos(context).list_runs(
            page_size=page_size, page_token=page_token, conversation_id=conversation_id
        )
        runs = [run_json(run) for run in listed.runs]
        return json_result({"runs": runs, "next_page_token": listed.next_page_token})

    async def get_run(
        self,
        context: Context[Any, Any],
        run_id: _RunId,
        wait_s: Annotated[
            float, Field(ge=0, le=86_400, description="Seconds to follow the run towards its end")
        ] = 0.0,
    ) -> CallToolResult:
        """Show a run: its answer, what it waits for, or that it is under way."""
        bos = self._bos(context)
        run = await bos.get_run(run_id)
        if wait_s and not run.HasField("response"):
            until = time.monotonic() + min(wait_s, self._policy.run_timeout_s)
            news = News(context)
            await news.tell(f"Run {run_id} is followed")
            stopped = await follow(bos, run_id, news, until=until)
            run = await bos.get_run(run_id)
            if stopped.approval is not None and not run.HasField("response"):
                return waiting(run, stopped.approval)
        return await _standing(bos, run)

    async def cancel_run(
        self,
        context: Context[Any, Any],
        run_id: _RunId,
        reason: Annotated[str, Field(max_length=1000, description="Why")] = "",
    ) -> CallToolResult:
        """End a run that is under way; what it has done stays done."""
        run = await self._bos(context).cancel(run_id, reason)
        return text_result(f"Run {run_id} is being cancelled.", run_json(run))

    async def list_approvals(
        self,
        context: Context[Any, Any],
        pending: Annotated[bool, Field(description="Only those that wait")] = True,
        page_size: _PageSize = 20,
        page_token: _PageToken = "",
    ) -> CallToolResult:
        """List actions that wait for approval, newest first; get_run shows one with all of it."""
        status = (
            ApprovalStatus.APPROVAL_STATUS_PENDING
            if pending
            else ApprovalStatus.APPROVAL_STATUS_UNSPECIFIED
        )
        listed = await self._bos(context).list_approvals(
            status=status, page_size=page_size, page_token=page_token
        )
        approvals = [approval_json(each) for each in listed.approvals]
        return json_result(
            {"approvals": approvals, "next_page_token": listed.next_page_token},
            tainted=any(each["tainted"] for each in approvals),
        )

    async def decide_approval(
        self,
        context: Context[Any, Any],
        approval_id: Annotated[str, Field(min_length=1, max_length=64, description="Which one")],
        decision: Annotated[
            Literal["approve", "deny"], Field(description="What the person wants done")
        ],
        instructions: Annotated[
            str,
            Field(max_length=4000, description="What to do in its place; leads to a new proposal"),
        ] = "",
    ) -> Outcome:
        """Decide an action that waits. The person is asked before anything is approved."""
        bos = self._bos(context)
        approval = await bos.get_approval(approval_id)
        decided = await self._decided(context, approval, decision, instructions)
        if isinstance(decided, CallToolResult | InputRequiredResult):
            return decided
        approval = await carry_out(bos, approval_id, decided)
        done = ApprovalStatus.Name(approval.status).removeprefix("APPROVAL_STATUS_").lower()
        text = f"The action is {done}. Follow run {approval.run_id} with get_run and wait_s."
        return text_result(text, approval_json(approval))

    async def _decided(
        self, context: Context[Any, Any], approval: Approval, decision: str, instructions: str
    ) -> Decision | Outcome:
        if decision == "deny" and not instructions:
            return Decision(approved=False)  # which can do no harm
        if self._policy.tool_approvals:
            return Decision(approved=True, instructions=instructions)
        reply = await decide_by_person(context, approval)
        if not isinstance(reply, Undecided):
            return reply
        why = "The person did not decide; the action waits." if reply.asked else _PERSON
        return refused(f"{approval_shown(approval)}\n\n{why}", approval_json(approval))

    def _bos(self, context: Context[Any, Any]) -> BosClient:
        return self._callers.bos(context.request_context.request)


async def _standing(bos: BosClient, run: Run) -> CallToolResult:
    if run.HasField("response"):
        return ended(run)
    if run.status == RunStatus.RUN_STATUS_WAITING_FOR_APPROVAL:
        # A key may be for asking alone; its holder still learns that the run waits.
        with suppress(PermissionDenied):
            approval_id = await _pending(bos, run.run_id)
            if approval_id:
                return waiting(run, await bos.get_approval(approval_id))
    return under_way(run)


async def _pending(bos: BosClient, run_id: str) -> str:
    token = ""
    for _ in range(_MAX_PAGES):
        listed = await bos.list_approvals(
            status=ApprovalStatus.APPROVAL_STATUS_PENDING, page_size=100, page_token=token
        )
        for each in listed.approvals:
            if each.run_id == run_id:
                return each.approval_id
        token = listed.next_page_token
        if not token:
            break
    return ""
