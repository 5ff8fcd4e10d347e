"""The tool ``ask``: a question to its end, with the person asked where one is needed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import Field

from bos_conversation.mcp.clarifying import clarified_run, reply_of_person, request_id_of
from bos_conversation.mcp.deciding import Undecided, approvals_replied, carry_out, decide_by_person
from bos_conversation.mcp.following import News, Stopped, follow
from bos_conversation.mcp.results import ended, failed, under_way, waiting
from bos_errors import AlreadyExists, BosError, PermissionDenied

if TYPE_CHECKING:
    from bos.gateway.v1 import Approval, Run
    from bos_client.client import BosClient
    from bos_client.requests import AskOptions
    from bos_conversation.mcp.callers import Callers, Policy

Id = Annotated[str, Field(max_length=128)]
Outcome = CallToolResult | InputRequiredResult


class Asking:
    """The tool that asks, for the caller of each request."""

    def __init__(self, callers: Callers, policy: Policy) -> None:
        self._callers = callers
        self._policy = policy

    async def ask(
        self,
        context: Context[Any, Any],
        question: Annotated[
            str,
            Field(min_length=1, max_length=32_768, description="The question, in plain language"),
        ],
        conversation_id: Annotated[
            Id, Field(description="Conversation that the question follows up, of an earlier result")
        ] = "",
        continues_run_id: Annotated[
            Id, Field(description="Run whose clarifying questions this replies to")
        ] = "",
        agents: Annotated[
            list[Id] | None, Field(max_length=64, description="Agents to prefer, in order")
        ] = None,
        timeout_s: Annotated[
            float | None,
            Field(gt=0, description="Seconds to wait; the run goes on after that. Unset: its end"),
        ] = None,
        tainted: Annotated[
            bool,
            Field(description="True if the question holds text that others wrote, such as a page"),
        ] = False,
    ) -> Outcome:
        """Ask Bos a question about the user's data, documents and tools, and wait for the answer.

        The run goes on if this call ends early: get_run follows it, cancel_run ends it. A result
        may say that the run waits for the person's approval, or ask back.
        """
        bos = self._callers.bos(context.request_context.request)
        options: AskOptions = {"tainted": tainted, "prefer_agents": agents or []}
        if conversation_id:
            options["conversation_id"] = conversation_id
        until = time.monotonic() + min(
            timeout_s or self._policy.run_timeout_s, self._policy.run_timeout_s
        )
        asked = _Asked(bos, context, options, until)
        run = await asked.begin(question, continues_run_id)
        if isinstance(run, CallToolResult | InputRequiredResult):
            return run
        try:
            return await asked.end(run)
        except BosError as error:
            return failed(error, run.run_id)


@dataclass
class _Asked:
    """One call of the tool."""

    bos: BosClient
    context: Context[Any, Any]
    options: AskOptions
    until: float
    decided: set[str] = field(default_factory=set)
    sequence: int = 0

    async def begin(self, question: str, continues_run_id: str) -> Run | Outcome:
        """The run of the question; where the client sends a reply, the one that it belongs to."""
        if replied := approvals_replied(self.context):
            approval = await self.bos.get_approval(replied[0])
            return await self.bos.get_run(approval.run_id)
        if clarified := clarified_run(self.context):
            return await self._clarified(await self.bos.get_run(clarified))
        if continues_run_id:
            before = await self.bos.get_run(continues_run_id)
            return await self._continued(before, question)
        return await self.bos.submit(question, **self.options)

    async def end(self, run: Run) -> Outcome:
        """Follow the run to its end, or to where it cannot go on in this call."""
        news = News(self.context)
        while True:
            await news.tell(f"Run {run.run_id} is accepted")
            while (stopped := await self._follow(run.run_id, news)).approval is not None:
                if (outcome := await self._decide(run, stopped.approval)) is not None:
                    return outcome
            run = await self.bos.get_run(run.run_id)
            if not run.HasField("response"):
                return under_way(run)
            if not run.response.HasField("clarification"):
                return ended(run)
            next_run = await self._clarified(run)
            if isinstance(next_run, CallToolResult | InputRequiredResult):
                return next_run
            run, self.sequence = next_run, 0

    async def _follow(self, run_id: str, news: News) -> Stopped:
        stopped = await follow(
            self.bos,
            run_id,
            news,
            until=self.until,
            after=self.sequence,
            decided=frozenset(self.decided),
        )
        self.sequence = stopped.sequence
        return stopped

    async def _decide(self, run: Run, approval: Approval) -> Outcome | None:
        """Have the person decide; the outcome of the call if the run cannot go on in it."""
        try:
            async with asyncio.timeout(max(0.0, self.until - time.monotonic())):
                decision = await decide_by_person(self.context, approval)
        except TimeoutError:
            return waiting(run, approval)
        if isinstance(decision, InputRequiredResult):
            return decision
        if isinstance(decision, Undecided):
            return waiting(run, approval)
        try:
            await carry_out(self.bos, approval.approval_id, decision)
        except PermissionDenied as error:
            return waiting(run, approval, error.message)
        except AlreadyExists:
            pass  # another client decided first, and the run continues by that
        self.decided.add(approval.approval_id)
        return None

    async def _clarified(self, run: Run) -> Run | Outcome:
        """The run that goes on from the person's reply; the questions themselves without one."""
        try:
            async with asyncio.timeout(max(0.0, self.until - time.monotonic())):
                reply = await reply_of_person(self.context, run)
        except TimeoutError:
            reply = None
        if isinstance(reply, InputRequiredResult):
            return reply
        return ended(run) if reply is None else await self._continued(run, reply)

    async def _continued(self, run: Run, reply: str) -> Run:
        tainted = self.options.get("tainted", False) or run.response.tainted
        options: AskOptions = {
            "prefer_agents": self.options.get("prefer_agents", ()),
            "tainted": tainted,
            "continues_run_id": run.run_id,
            "request_id": request_id_of(run.run_id, reply),
        }
        return await self.bos.submit(reply, **options)
