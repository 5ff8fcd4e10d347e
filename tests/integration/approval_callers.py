"""One client of an approval, three ways: gRPC, REST without streams, and server-sent events.

All three report what they saw as server-sent events, so that one test reads them.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import aiohttp
from google.protobuf.json_format import ParseDict

from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_TIMED_OUT,
    Approval,
    ApprovalStatus,
    OrchestratorResponse,
    RunEvent,
)
from bos_client import BosClient
from bos_errors import BosError, Unavailable
from bos_testkit.waiting import eventually

from .approval_harness import Worker

PROTOBUF_JSON = "application/protobuf+json"
_WITHIN_S = 60.0
_LOOK_S = 0.02
_RESOLVED: Mapping[ApprovalStatus, str] = {
    APPROVAL_STATUS_APPROVED: "hitl_approved",
    APPROVAL_STATUS_DENIED: "hitl_denied",
    APPROVAL_STATUS_TIMED_OUT: "hitl_timeout",
}

SentEvent = tuple[str, dict[str, Any]]


class Refused(Exception):
    """A decision that was not taken, with the code of its way and the stable reason."""

    def __init__(self, code: object, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


def required(approval: Approval) -> SentEvent:
    """A request, as a server-sent event."""
    timeout = approval.expire_time.ToNanoseconds() - approval.create_time.ToNanoseconds()
    return "hitl_required", {
        "request_id": approval.approval_id,
        "agent_id": approval.agent_id,
        "agent_name": approval.agent_name,
        "tool_names": [action.tool for action in approval.actions],
        "task_description": approval.task_description,
        "timeout_seconds": timeout / 1e9,
    }


def resolved(approval: Approval) -> SentEvent:
    """Its end, as a server-sent event."""
    payload = {"request_id": approval.approval_id, "agent_id": approval.agent_id}
    return _RESOLVED[approval.status], payload


class Caller(ABC):
    """One client of one worker; an async context manager.

    Args:
        worker: Whom it asks, and whose stream it follows.
    """

    too_late: object
    """Code of a decision that comes too late."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events: list[SentEvent] = []
        """Events about approvals that it got, in order."""
        self.finished_steps: list[str] = []
        """Steps whose ends it got."""
        self.response: OrchestratorResponse | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ask(self, question: str) -> None:
        """Ask, and follow from now on."""
        self._task = asyncio.create_task(self._follow(question))

    async def asked(self, times: int = 1) -> dict[str, Any]:
        """The latest request, once there have been so many."""

        def requests() -> list[dict[str, Any]]:
            return [payload for name, payload in self.events if name == "hitl_required"]

        assert self._task is not None
        task = self._task
        await eventually(lambda: len(requests()) >= times or task.done(), within_s=_WITHIN_S)
        if len(requests()) < times:
            task.result()
        return requests()[times - 1]

    async def end(self) -> OrchestratorResponse:
        """The outcome of the run."""
        assert self._task is not None
        async with asyncio.timeout(_WITHIN_S):
            await self._task
        assert self.response is not None
        return self.response

    @abstractmethod
    async def _follow(self, question: str) -> None: ...

    @abstractmethod
    async def decide(
        self, request_id: str, decision: str, instructions: str = "", *, at: Worker | None = None
    ) -> str:
        """Decide ``approved`` or ``denied``; the request's state after that.

        Raises:
            Refused: it was not taken.
        """

    @abstractmethod
    async def unary(self, question: str) -> OrchestratorResponse:
        """Ask without any stream."""


class GrpcCaller(Caller):
    """By the client library."""

    too_late = "ALREADY_EXISTS"

    async def _follow(self, question: str) -> None:
        async with BosClient(self.worker.target) as bos, aclosing(bos.ask_stream(question)) as run:
            async for event in run:
                self._take(event)

    def _take(self, event: RunEvent) -> None:
        if event.HasField("approval_requested"):
            self.events.append(required(event.approval_requested.approval))
        elif event.HasField("approval_resolved"):
            self.events.append(resolved(event.approval_resolved.approval))
        elif event.HasField("step_finished"):
            self.finished_steps.append(event.step_finished.step_id)
        elif event.HasField("run_finished"):
            self.response = event.run_finished.response

    async def decide(
        self, request_id: str, decision: str, instructions: str = "", *, at: Worker | None = None
    ) -> str:
        async with BosClient((at or self.worker).target) as bos, asyncio.timeout(_WITHIN_S):
            while True:
                try:
                    if decision == "approved":
                        return _state(await bos.approve(request_id, instructions))
                    return _state(await bos.deny(request_id))
                except Unavailable:
                    await asyncio.sleep(_LOOK_S)  # which is what it means
                except BosError as error:
                    raise Refused(error.code.name, error.reason) from None

    async def unary(self, question: str) -> OrchestratorResponse:
        async with BosClient(self.worker.target) as bos:
            return await bos.ask(question)


class RestCaller(Caller):
    """By HTTP without following anything: the stream is dropped once it has said the run's id."""

    too_late = 409

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self._http = aiohttp.ClientSession(headers={"Accept": PROTOBUF_JSON})

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self._http.close()

    async def _follow(self, question: str) -> None:
        async with self._http.post(
            f"{self.worker.rest_url}/v1/runs:askStream", json={"question": question}
        ) as stream:
            _, first = await anext(_messages(stream))
        run_id = first["run_id"]
        while True:
            run = await self._get(f"/v1/runs/{run_id}")
            listed = await self._get("/v1/approvals?page_size=200")
            self._look(run_id, [_parsed(Approval(), each) for each in listed["approvals"]])
            if run.get("response"):
                self.response = _parsed(OrchestratorResponse(), run["response"])
                return
            # There is no event and no condition to wait for.
            await asyncio.sleep(_LOOK_S)

    def _look(self, run_id: str, approvals: list[Approval]) -> None:
        for approval in reversed(approvals):  # oldest first
            if approval.run_id != run_id:
                continue
            seen = [required(approval)]
            if approval.status in _RESOLVED:
                seen.append(resolved(approval))
            self.events += [each for each in seen if each not in self.events]

    async def _get(self, path: str) -> Any:
        return await self._call("GET", self.worker.rest_url + path)

    async def _call(self, verb: str, url: str, body: Any = None) -> Any:
        """The content of the answer; 503 means trying again, as for every client."""
        async with asyncio.timeout(_WITHIN_S):
            while True:
                async with self._http.request(verb, url, json=body) as answer:
                    if answer.status != 503:
                        return await _content(answer)
                await asyncio.sleep(_LOOK_S)

    async def decide(
        self, request_id: str, decision: str, instructions: str = "", *, at: Worker | None = None
    ) -> str:
        word = {"approved": "APPROVE", "denied": "DENY"}[decision]
        body = {"decision": f"APPROVAL_DECISION_{word}", "instructions": instructions}
        url = f"{(at or self.worker).rest_url}/v1/approvals/{request_id}:respond"
        return _state(_parsed(Approval(), await self._call("POST", url, body)))

    async def unary(self, question: str) -> OrchestratorResponse:
        return await self._unary("/v1/runs:ask", question)

    async def _unary(self, path: str, question: str) -> OrchestratorResponse:
        content = await self._call("POST", self.worker.rest_url + path, {"question": question})
        return _parsed(OrchestratorResponse(), content)


class SseCaller(RestCaller):
    """By server-sent events and the paths and bodies of the source documents."""

    async def _follow(self, question: str) -> None:
        async with self._http.post(
            f"{self.worker.rest_url}/query/stream", json={"question": question}
        ) as stream:
            async for name, content in _messages(stream):
                if name.startswith("hitl_"):
                    self.events.append((name, content))
                elif name == "step_finished":
                    self.finished_steps.append(content["step_finished"]["step_id"])
                elif name == "done":
                    self.response = _parsed(OrchestratorResponse(), content)

    async def decide(
        self, request_id: str, decision: str, instructions: str = "", *, at: Worker | None = None
    ) -> str:
        body = {"request_id": request_id, "decision": decision, "instructions": instructions}
        url = f"{(at or self.worker).rest_url}/hitl/respond"
        return _state(_parsed(Approval(), await self._call("POST", url, body)))

    async def unary(self, question: str) -> OrchestratorResponse:
        return await self._unary("/query", question)


CALLERS: Mapping[str, type[Caller]] = {"grpc": GrpcCaller, "rest": RestCaller, "sse": SseCaller}


async def _messages(stream: aiohttp.ClientResponse) -> Any:
    """Name and content of each server-sent event."""
    assert stream.status == 200, await stream.text()
    name = ""
    async for raw in stream.content:
        field, _, value = raw.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


async def _content(answer: aiohttp.ClientResponse) -> Any:
    content = await answer.json()
    if answer.status == 200:
        return content
    (info,) = [d for d in content["error"]["details"] if d["@type"].endswith("ErrorInfo")]
    raise Refused(answer.status, info["reason"])


def _parsed(message: Any, content: Any) -> Any:
    return ParseDict(content, message)


def _state(approval: Approval) -> str:
    return _RESOLVED[approval.status].removeprefix("hitl_")
