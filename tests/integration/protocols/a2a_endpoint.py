"""A2A, by the protocol's official client over each of its bindings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.client import Client, ClientCallContext
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as a2a
from a2a.utils.constants import TransportProtocol
from a2a.utils.errors import A2AError, UnsupportedOperationError
from google.protobuf.json_format import MessageToDict

from .endpoint import Endpoint, Refused, Seen, State, patiently

_WITHIN_S = 120.0
_AWAY = ("503", "UNAVAILABLE")
_STATES = {
    a2a.TASK_STATE_COMPLETED: State.ANSWERED,
    a2a.TASK_STATE_FAILED: State.FAILED,
    a2a.TASK_STATE_CANCELED: State.CANCELLED,
}


@dataclass
class Following:
    """A task as a client puts it together from its stream."""

    task: a2a.Task = field(default_factory=a2a.Task)
    pieces: list[str] = field(default_factory=list)

    def take(self, update: a2a.StreamResponse) -> None:
        """Apply one update, as the protocol says."""
        if update.HasField("task"):
            self.task.CopyFrom(update.task)
        elif update.HasField("status_update"):
            assert update.status_update.task_id == self.task.id
            self.task.status.CopyFrom(update.status_update.status)
        elif update.HasField("artifact_update"):
            self._artifact(update.artifact_update)

    def _artifact(self, update: a2a.TaskArtifactUpdateEvent) -> None:
        given = update.artifact
        if given.artifact_id == "answer" and given.parts[0].text:
            self.pieces.append(given.parts[0].text)
        known = next((a for a in self.task.artifacts if a.artifact_id == given.artifact_id), None)
        if known is None:
            self.task.artifacts.add().CopyFrom(given)
        elif update.append:
            known.parts.extend(given.parts)
        else:
            known.CopyFrom(given)

    def seen(self) -> Seen:
        """What it shows."""
        seen = seen_of(self.task)
        seen.pieces = self.pieces
        return seen


def seen_of(task: a2a.Task) -> Seen:
    """What a task shows."""
    found = {one.artifact_id: one for one in task.artifacts}
    text = "".join(part.text for part in found["answer"].parts) if "answer" in found else ""
    rows: list[list[str]] = []
    if "table" in found:
        rows = MessageToDict(found["table"].parts[0].data)["rows"]
    state = _STATES.get(task.status.state, State.UNDER_WAY)
    if task.status.state == a2a.TASK_STATE_INPUT_REQUIRED:
        parts = task.status.message.parts
        text = "\n".join(part.text for part in parts if part.text)
        asked = [MessageToDict(part.data) for part in parts if part.HasField("data")]
        is_approval = any("approval_id" in one for one in asked)
        state = State.WAITS_FOR_APPROVAL if is_approval else State.ASKS_BACK
    return Seen(state, text, rows, task.id)


def message(text: str, **fields: Any) -> a2a.SendMessageRequest:
    """A user's message with one text."""
    return a2a.SendMessageRequest(
        message=a2a.Message(
            message_id=str(uuid4()), role=a2a.ROLE_USER, parts=[a2a.Part(text=text)], **fields
        )
    )


class A2aEndpoint(Endpoint):
    """A dropped task is subscribed to again, or got once it has ended."""

    binding: TransportProtocol

    async def __aenter__(self) -> A2aEndpoint:
        bearer = f"Bearer {self.token}"
        self.http = httpx.AsyncClient(
            headers={"Authorization": bearer, "A2A-Version": "1.0"}, timeout=_WITHIN_S
        )
        card = await A2ACardResolver(self.http, self.harness.rest_url).get_agent_card()
        self.context = ClientCallContext(service_parameters={"authorization": bearer})
        self.client = self._made(card, streaming=True)
        self._waiting = self._made(card, streaming=False)
        return self

    def _made(self, card: a2a.AgentCard, streaming: bool) -> Client:
        config = ClientConfig(
            streaming=streaming,
            httpx_client=self.http,
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=[self.binding.value],
        )
        return ClientFactory(config).create(card)

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self._waiting.close()
        await self.http.aclose()

    async def ask(self, question: str) -> Seen:
        return await self._sent(message(question))

    async def stream(self, question: str) -> Seen:
        following = Following()
        request = message(question)
        async with aclosing(self.client.send_message(request, context=self.context)) as updates:
            async for update in updates:
                following.take(update)
        return following.seen()

    async def drop(self, question: str) -> Seen:
        following = Following()
        request = message(question)
        async with aclosing(self.client.send_message(request, context=self.context)) as updates:
            async for update in updates:
                following.take(update)
                if following.pieces:
                    return following.seen()
        raise AssertionError("there was no text")

    async def resume(self, dropped: Seen) -> Seen:
        async def subscribed() -> Seen:
            following = Following()
            request = a2a.SubscribeToTaskRequest(id=dropped.handle)
            try:
                async with aclosing(
                    self.client.subscribe(request, context=self.context)
                ) as updates:
                    async for update in updates:
                        following.take(update)
            except UnsupportedOperationError:
                return await self._got(dropped.handle)
            return following.seen()

        return await patiently(subscribed, A2AClientError, _AWAY)

    async def reply(self, waiting: Seen, text: str) -> Seen:
        return await self._sent(message(text, task_id=waiting.handle))

    async def cancel(self, dropped: Seen) -> None:
        request = a2a.CancelTaskRequest(id=dropped.handle)
        try:
            await self.client.cancel_task(request, context=self.context)
        except A2AError as error:
            raise Refused(str(error)) from None

    async def look(self, dropped: Seen) -> Seen:
        try:
            seen = await self._got(dropped.handle)
            return await self.resume(dropped) if seen.state is State.UNDER_WAY else seen
        except A2AError as error:
            raise Refused(str(error)) from None

    async def _got(self, task_id: str) -> Seen:
        request = a2a.GetTaskRequest(id=task_id)
        return seen_of(await self.client.get_task(request, context=self.context))

    async def _sent(self, request: a2a.SendMessageRequest) -> Seen:
        async def sent() -> Seen:
            (response,) = [one async for one in self.updates(request)]
            return seen_of(response.task)

        # The same message is the same task.
        return await patiently(sent, A2AClientError, _AWAY)

    async def updates(self, request: a2a.SendMessageRequest) -> AsyncIterator[a2a.StreamResponse]:
        """What comes of a message, once its task rests."""
        async for one in self._waiting.send_message(request, context=self.context):
            yield one


class A2aHttpEndpoint(A2aEndpoint):
    """By HTTP+JSON."""

    name = "a2a-http"
    binding = TransportProtocol.HTTP_JSON


class A2aJsonRpcEndpoint(A2aEndpoint):
    """By JSON-RPC."""

    name = "a2a-jsonrpc"
    binding = TransportProtocol.JSONRPC


class A2aGrpcEndpoint(A2aEndpoint):
    """By the protocol's own gRPC."""

    name = "a2a-grpc"
    binding = TransportProtocol.GRPC
