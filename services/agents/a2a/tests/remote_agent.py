"""A remote agent on the official SDK's server, which does what its messages say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as a2a
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from bos_testkit.asgi_server import asgi_server

PATH = "/billing"
BINDINGS = {"JSONRPC": f"{PATH}/rpc", "HTTP+JSON": f"{PATH}/v1"}


def text(said: str) -> a2a.Part:
    return a2a.Part(text=said)


def data(value: Any) -> a2a.Part:
    return a2a.Part(data=ParseDict(value, Value()))


@dataclass
class RemoteAgent(AgentExecutor):
    """Knows invoices; records the messages it was sent and the tasks it canceled."""

    messages: list[a2a.Message] = field(default_factory=list)
    canceled: list[str] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    """Awaited by the task that waits."""
    parts: list[a2a.Part] = field(default_factory=lambda: [text("Invoice 7 is 120 euros.")])
    """Of the artifact."""
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Paths and headers of the HTTP requests."""
    drops: int = 0
    """Streams that are to break off behind their first piece."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.messages.append(context.message)
        said = context.get_user_input()
        if "at once" in said:
            await event_queue.enqueue_event(
                a2a.Message(message_id="m1", role=a2a.ROLE_AGENT, parts=[text("At once.")])
            )
            return
        task = context.current_task or new_task_from_user_message(context.message)
        if context.current_task is None:
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        note = updater.new_agent_message([text("I look.")])
        await updater.update_status(a2a.TASK_STATE_WORKING, note)
        if "wait" in said:
            await self.go_on.wait()
        if "pieces" in said:
            for at, piece in enumerate(("One and ", "two an", "d three.")):
                await updater.add_artifact([text(piece)], "answer", append=at > 0)
        await self._end(updater, said)

    async def _end(self, updater: TaskUpdater, said: str) -> None:
        for word, state in {
            "ask": a2a.TASK_STATE_INPUT_REQUIRED,
            "log in": a2a.TASK_STATE_AUTH_REQUIRED,
            "reject": a2a.TASK_STATE_REJECTED,
            "fail": a2a.TASK_STATE_FAILED,
        }.items():
            if word in said:
                message = updater.new_agent_message([text(f"Which one? <b>{word}</b>")])
                await updater.update_status(state, message)
                return
        if "pieces" not in said:
            await updater.add_artifact(self.parts, "answer", name="Answer")
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        self.canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()

    def card(self, url: str, bindings: tuple[str, ...], *, streaming: bool) -> a2a.AgentCard:
        return a2a.AgentCard(
            name="Billing",
            description="Knows <b>all</b> invoices.",
            version="1",
            supported_interfaces=[
                a2a.AgentInterface(
                    url=url + BINDINGS[each], protocol_binding=each, protocol_version="1.0"
                )
                for each in bindings
            ],
            capabilities=a2a.AgentCapabilities(streaming=streaming),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[
                a2a.AgentSkill(
                    id="invoices",
                    name="Invoices",
                    description="Finds invoices.",
                    tags=["revenue"],
                    examples=["What is invoice 7?"],
                )
            ],
        )


@asynccontextmanager
async def served(
    agent: RemoteAgent,
    *,
    bindings: tuple[str, ...] = ("JSONRPC",),
    streaming: bool = True,
    port: int = 0,
) -> AsyncIterator[str]:
    application = Starlette()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        agent.requests.append((scope["path"], headers))
        await application(scope, receive, _dropping(agent, scope, send))

    async with asgi_server(watched, port=port) as url:
        card = agent.card(url, bindings, streaming=streaming)
        handler = DefaultRequestHandler(agent, InMemoryTaskStore(), card)
        application.router.routes += [
            *create_agent_card_routes(card, card_url=f"{PATH}/.well-known/agent-card.json"),
            *create_jsonrpc_routes(handler, BINDINGS["JSONRPC"]),
            *create_rest_routes(handler, path_prefix=BINDINGS["HTTP+JSON"]),
        ]
        try:
            yield url + PATH
        finally:
            agent.go_on.set()


def _dropping(agent: RemoteAgent, scope: Scope, send: Send) -> Send:
    """Breaks off event streams behind their first piece, as many as are to be dropped."""
    streams = False

    async def dropping(message: Any) -> None:
        nonlocal streams
        if message["type"] == "http.response.start":
            headers = dict(message["headers"])
            streams = headers.get(b"content-type", b"").startswith(b"text/event-stream")
        await send(message)
        if streams and message.get("body") and agent.drops > 0:
            agent.drops -= 1
            raise ConnectionAbortedError

    return dropping if scope["type"] == "http" else send
