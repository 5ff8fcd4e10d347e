"""What every endpoint can do, in the words of the cases; gRPC and REST, which are Bos' own."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp

from bos.gateway.v1 import ApprovalStatus, Run, RunStatus
from bos_client import BosClient, plain_json
from bos_errors import BosError

from .harness import Harness

_WITHIN_S = 120.0
_LOOK_S = 0.05


class State(StrEnum):
    """Where a question stands, as its client sees it."""

    ANSWERED = "answered"
    WAITS_FOR_APPROVAL = "waits for approval"
    ASKS_BACK = "asks back"
    CANCELLED = "cancelled"
    FAILED = "failed"
    UNDER_WAY = "under way"


@dataclass
class Seen:
    """What a client saw of a question so far."""

    state: State
    text: str = ""
    """The answer, the question back, or all that is shown of the action that waits."""
    rows: list[list[str]] = field(default_factory=list)
    handle: Any = None
    """What the client needs to go on with, of the endpoint's own kind."""
    pieces: list[str] = field(default_factory=list)
    """The text as it came, if it was streamed."""


class Refused(Exception):
    """The endpoint refuses; its text is what the client saw."""


async def patiently(
    call: Callable[[], Awaitable[Seen]], error: type[Exception], signs: tuple[str, ...]
) -> Seen:
    """Try again while the service is away, which is what ``error`` with one of ``signs`` says."""
    async with asyncio.timeout(_WITHIN_S):
        while True:
            try:
                return await call()
            except error as failure:
                if not any(sign in str(failure) for sign in signs):
                    raise
            await asyncio.sleep(_LOOK_S)


class Endpoint(ABC):
    """One user's client of one endpoint; an async context manager."""

    name: str

    def __init__(self, harness: Harness, token: str) -> None:
        self.harness = harness
        self.token = token

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    @abstractmethod
    async def ask(self, question: str) -> Seen:
        """Ask, and wait until it is answered, waits for a person, or asks back."""

    @abstractmethod
    async def stream(self, question: str) -> Seen:
        """Ask and read the text as it comes."""

    @abstractmethod
    async def drop(self, question: str) -> Seen:
        """Ask, read the first piece of the answer, and lose the connection."""

    @abstractmethod
    async def resume(self, dropped: Seen) -> Seen:
        """Go on behind what was seen; the text is the whole, what was seen before included."""

    @abstractmethod
    async def reply(self, waiting: Seen, text: str) -> Seen:
        """Say something to what asks back, or yes or no to what waits for approval."""

    @abstractmethod
    async def cancel(self, dropped: Seen) -> None:
        """Ask for the end of what is under way."""

    @abstractmethod
    async def look(self, dropped: Seen) -> Seen:
        """How a question stands.

        Raises:
            Refused: it is not the caller's, or there is none.
        """


_ENDED: Mapping[RunStatus, State] = {
    RunStatus.RUN_STATUS_SUCCEEDED: State.ANSWERED,
    RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED: State.ANSWERED,
    RunStatus.RUN_STATUS_CLARIFICATION_NEEDED: State.ASKS_BACK,
    RunStatus.RUN_STATUS_CANCELLED: State.CANCELLED,
    RunStatus.RUN_STATUS_FAILED: State.FAILED,
}


def seen_of(run: Mapping[str, Any]) -> Seen:
    """What plain JSON of a run shows."""
    state = _ENDED.get(RunStatus.Value(run["status"]), State.UNDER_WAY)
    response = run.get("response") or {}
    rows = (response.get("data") or {}).get("rows") or []
    questions = (response.get("clarification") or {}).get("questions") or []
    text = response.get("answer", "")
    if state is State.ASKS_BACK:
        text = "\n".join([q["question"] for q in questions] + questions[0]["options"])
    return Seen(state, text, rows, run["run_id"])


class GrpcEndpoint(Endpoint):
    """By the client library."""

    name = "grpc"

    async def __aenter__(self) -> Endpoint:
        self._bos = BosClient(self.harness.target, api_key=self.token)
        await self._bos.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._bos.__aexit__(None, None, None)

    async def ask(self, question: str) -> Seen:
        run = await self._bos.submit(question)
        return await self._settled(run)

    async def stream(self, question: str) -> Seen:
        seen = Seen(State.UNDER_WAY)
        async with aclosing(self._bos.ask_stream(question)) as events:
            async for event in events:
                seen.handle = event.run_id
                if event.HasField("answer_delta"):
                    seen.pieces.append(event.answer_delta.text)
        return await self._with_end(seen)

    async def drop(self, question: str) -> Seen:
        seen = Seen(State.UNDER_WAY)
        async with aclosing(self._bos.ask_stream(question)) as events:
            async for event in events:
                seen.handle = (event.run_id, event.sequence, 0)
                if event.HasField("answer_delta"):
                    seen.text = event.answer_delta.text
                    seen.handle = (event.run_id, event.sequence, len(seen.text))
                    return seen
        raise AssertionError("there was no text")

    async def resume(self, dropped: Seen) -> Seen:
        run_id, sequence, offset = dropped.handle
        text = dropped.text
        async with aclosing(self._bos.watch(run_id, sequence, offset)) as events:
            async for event in events:
                if event.HasField("answer_started"):
                    text = ""
                elif event.HasField("answer_delta"):
                    text += event.answer_delta.text
        seen = seen_of(plain_json(await self._bos.get_run(run_id)))
        seen.text = text
        return seen

    async def reply(self, waiting: Seen, text: str) -> Seen:
        if waiting.state is State.ASKS_BACK:
            return await self._settled(
                await self._bos.submit(text, continues_run_id=waiting.handle)
            )
        run_id, approval_id = waiting.handle
        decide = {"yes": self._bos.approve, "no": self._bos.deny}[text]
        await decide(approval_id)
        return await self._settled(await self._bos.get_run(run_id))

    async def cancel(self, dropped: Seen) -> None:
        try:
            await self._bos.cancel(dropped.handle[0])
        except BosError as error:
            raise Refused(error.message) from None

    async def look(self, dropped: Seen) -> Seen:
        try:
            run = await self._bos.get_run(dropped.handle[0], wait_s=30)
        except BosError as error:
            raise Refused(error.message) from None
        return seen_of(plain_json(run))

    async def _settled(self, run: Run) -> Seen:
        """The run once it has ended or waits for a person."""
        while not run.HasField("response"):
            # What was decided a moment ago leaves the run waiting until its owner has seen it.
            if waiting := await self._waiting(run.run_id):
                return waiting
            run = await self._bos.get_run(run.run_id, wait_s=30, after_sequence=run.last_sequence)
        return seen_of(plain_json(run))

    async def _waiting(self, run_id: str) -> Seen | None:
        pending = ApprovalStatus.APPROVAL_STATUS_PENDING
        listed = (await self._bos.list_approvals(status=pending)).approvals
        found = next((each for each in listed if each.run_id == run_id), None)
        if found is None:
            return None
        approval = await self._bos.get_approval(found.approval_id)
        shown = json.dumps(plain_json(approval)["display"])
        return Seen(State.WAITS_FOR_APPROVAL, shown, handle=(run_id, approval.approval_id))

    async def _with_end(self, seen: Seen) -> Seen:
        ended = seen_of(plain_json(await self._bos.get_run(seen.handle)))
        return Seen(ended.state, "".join(seen.pieces), ended.rows, seen.handle, seen.pieces)


class RestEndpoint(Endpoint):
    """By HTTP: JSON, and server-sent events for streams."""

    name = "rest"

    async def __aenter__(self) -> Endpoint:
        self._http = aiohttp.ClientSession(
            self.harness.rest_url, headers={"Authorization": f"Bearer {self.token}"}
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def ask(self, question: str) -> Seen:
        return await self._settled(await self._call("POST", "/v1/runs", {"question": question}))

    async def stream(self, question: str) -> Seen:
        seen = Seen(State.UNDER_WAY)
        async with self._events("POST", "/v1/runs:askStream", {"question": question}) as events:
            async for _, name, event in events:
                if name == "answer_delta":
                    seen.pieces.append(event["answer_delta"]["text"])
                if name == "run_finished":
                    seen.handle = event["run_id"]
        ended = seen_of(await self._call("GET", f"/v1/runs/{seen.handle}"))
        return Seen(ended.state, "".join(seen.pieces), ended.rows, seen.handle, seen.pieces)

    async def drop(self, question: str) -> Seen:
        async with self._events("POST", "/v1/runs:askStream", {"question": question}) as events:
            async for at, name, event in events:
                if name == "answer_delta":
                    text = event["answer_delta"]["text"]
                    return Seen(State.UNDER_WAY, text, handle=(event["run_id"], at))
        raise AssertionError("there was no text")

    async def resume(self, dropped: Seen) -> Seen:
        run_id, at = dropped.handle
        text = dropped.text
        headers = {"Last-Event-ID": at}
        async with self._events("GET", f"/v1/runs/{run_id}:watch", headers=headers) as events:
            async for _, name, event in events:
                if name == "answer_started":
                    text = ""
                elif name == "answer_delta":
                    text += event["answer_delta"]["text"]
                elif name == "run_finished":
                    # Who joins late has a part of the pieces, or none, and here all of the text.
                    answer = event["run_finished"]["response"]["answer"]
                    assert answer.startswith(text), (answer, text)
                    text = answer
        seen = seen_of(await self._call("GET", f"/v1/runs/{run_id}"))
        seen.text = text
        return seen

    async def reply(self, waiting: Seen, text: str) -> Seen:
        if waiting.state is State.ASKS_BACK:
            body = {"question": text, "continues_run_id": waiting.handle}
            return await self._settled(await self._call("POST", "/v1/runs", body))
        run_id, approval_id = waiting.handle
        decision = {"yes": "approve", "no": "deny"}[text].upper()
        body = {"decision": f"APPROVAL_DECISION_{decision}"}
        await self._call("POST", f"/v1/approvals/{approval_id}:respond", body)
        return await self._settled(await self._call("GET", f"/v1/runs/{run_id}"))

    async def cancel(self, dropped: Seen) -> None:
        await self._call("POST", f"/v1/runs/{dropped.handle[0]}:cancel", {})

    async def look(self, dropped: Seen) -> Seen:
        return seen_of(await self._call("GET", f"/v1/runs/{dropped.handle[0]}?wait=30s"))

    async def _settled(self, run: dict[str, Any]) -> Seen:
        while not run.get("response"):
            if waiting := await self._waiting(run["run_id"]):
                return waiting
            path = f"/v1/runs/{run['run_id']}"
            run = await self._call("GET", f"{path}?wait=30s&after_sequence={run['last_sequence']}")
        return seen_of(run)

    async def _waiting(self, run_id: str) -> Seen | None:
        listed = await self._call("GET", "/v1/approvals?status=APPROVAL_STATUS_PENDING")
        found = next((each for each in listed["approvals"] if each["run_id"] == run_id), None)
        if found is None:
            return None
        approval = await self._call("GET", f"/v1/approvals/{found['approval_id']}")
        shown = json.dumps(approval["display"])
        return Seen(State.WAITS_FOR_APPROVAL, shown, handle=(run_id, found["approval_id"]))

    async def _call(self, verb: str, path: str, body: Any = None) -> Any:
        async with self._reply(verb, path, json=body) as reply:
            content = await reply.json()
            if reply.status >= 400:
                raise Refused(content["error"]["message"])
            return content

    @asynccontextmanager
    async def _reply(
        self, verb: str, path: str, **more: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer; 503 means trying again, as for every client of HTTP."""
        async with asyncio.timeout(_WITHIN_S):
            while True:
                async with self._http.request(verb, path, **more) as reply:
                    if reply.status != 503:
                        yield reply
                        return
                await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _events(
        self, verb: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[tuple[str, str, Any]]]:
        async with self._reply(verb, path, json=body, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            yield _sse(reply)


async def _sse(reply: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str, Any]]:
    """Id, name and content of each event."""
    fields: dict[str, str] = {}
    async for raw in reply.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
