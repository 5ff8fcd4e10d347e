"""MCP: its tools by the SDK's client over streamable HTTP, each call on a connection of its own.

What MCP has no word for: a call that ends early cannot be taken up, so the run's id, which the
first progress notification names, leads to ``get_run``; and ``cancel_run`` ends a run.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult

from bos_conversation.mcp.following import ANSWER_SO_FAR

from .endpoint import Endpoint, Refused, Seen, State, patiently

_WITHIN_S = 120.0
_AWAY = ("not reachable", "may be restarting")
_STATES = {
    "succeeded": State.ANSWERED,
    "partially_succeeded": State.ANSWERED,
    "clarification_needed": State.ASKS_BACK,
    "cancelled": State.CANCELLED,
    "failed": State.FAILED,
}
_REPLIES = {
    "yes": ElicitResult(action="accept", content={"decision": "approve"}),
    "no": ElicitResult(action="decline"),
}


class McpEndpoint(Endpoint):
    """By the tools of the MCP server."""

    name = "mcp"

    async def ask(self, question: str) -> Seen:
        return _seen(await self.call("ask", {"question": question}))

    async def stream(self, question: str) -> Seen:
        heard: list[str] = []
        result = await self.call("ask", {"question": question}, on_progress=heard.append)
        seen = _seen(result)
        texts = [line.removeprefix(ANSWER_SO_FAR) for line in heard if ANSWER_SO_FAR in line]
        assert texts, "no text came before the end"
        # News of the text may leave out its end, which comes with the result.
        seen.pieces = [texts[-1], result.structured_content["answer"].removeprefix(texts[-1])]
        return seen

    async def drop(self, question: str) -> Seen:
        heard: asyncio.Queue[str] = asyncio.Queue()
        call = asyncio.create_task(
            self.call("ask", {"question": question}, on_progress=heard.put_nowait)
        )
        found = re.match(r"Run (\S+) is accepted", await asyncio.wait_for(heard.get(), _WITHIN_S))
        assert found is not None
        while ANSWER_SO_FAR not in (line := await asyncio.wait_for(heard.get(), _WITHIN_S)):
            pass
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        return Seen(State.UNDER_WAY, line.removeprefix(ANSWER_SO_FAR), handle=found[1])

    async def resume(self, dropped: Seen) -> Seen:
        # REST may have found the gateway before protocols have.
        seen = await patiently(lambda: self.look(dropped), Refused, _AWAY)
        assert seen.text.startswith(dropped.text)
        return seen

    async def reply(self, waiting: Seen, text: str) -> Seen:
        run_id, approval_id = waiting.handle
        if waiting.state is State.ASKS_BACK:
            return _seen(await self.call("ask", {"question": text, "continues_run_id": run_id}))

        async def person(_: Any, asked: ElicitRequestParams) -> ElicitResult:
            assert "trigger_deployment" in asked.message
            return _REPLIES[text]

        decision = {"approval_id": approval_id, "decision": "approve"}
        await self.call("decide_approval", decision, person=person)
        return await self.look(Seen(State.UNDER_WAY, handle=run_id))

    async def cancel(self, dropped: Seen) -> None:
        await self.call("cancel_run", {"run_id": dropped.handle})

    async def look(self, dropped: Seen) -> Seen:
        # What was decided a moment ago leaves the run waiting until its owner has seen it.
        while True:
            seen = _seen(await self.call("get_run", {"run_id": dropped.handle, "wait_s": 60}))
            if seen.state not in (State.UNDER_WAY, State.WAITS_FOR_APPROVAL):
                return seen

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        on_progress: Callable[[str], None] | None = None,
        person: Any = None,
    ) -> CallToolResult:
        """The result of a tool."""

        async def progress(_: float, __: float | None, message: str | None) -> None:
            assert on_progress is not None
            on_progress(message or "")

        async with asyncio.timeout(_WITHIN_S):
            async with self.client(person) as client:
                result = await client.call_tool(
                    tool, arguments, progress_callback=progress if on_progress else None
                )
        if result.is_error:
            raise Refused(text_of(result))
        return result

    @asynccontextmanager
    async def client(self, person: Any = None, mode: str = "auto") -> AsyncIterator[Client]:
        """A client of the SDK, connected once the gateway answers."""
        headers = {"Authorization": f"Bearer {self.token}"}
        await self.harness.answers()
        async with httpx2.AsyncClient(headers=headers, timeout=_WITHIN_S) as http:
            transport = streamable_http_client(f"{self.harness.rest_url}/mcp", http_client=http)
            async with Client(transport, elicitation_callback=person, mode=mode) as client:
                yield client


def text_of(result: CallToolResult) -> str:
    """All texts of a result."""
    return "\n".join(each.text for each in result.content if each.type == "text")


def _seen(result: CallToolResult) -> Seen:
    content = result.structured_content
    run_id = content["run_id"]
    if "approval" in content:
        approval_id = content["approval"]["approval_id"]
        return Seen(State.WAITS_FOR_APPROVAL, text_of(result), handle=(run_id, approval_id))
    state = _STATES.get(content["status"], State.UNDER_WAY)
    if state is State.ASKS_BACK:
        return Seen(state, text_of(result), handle=(run_id, ""))
    rows = content.get("table", {}).get("rows", [])
    return Seen(state, content.get("answer", ""), rows, run_id)
