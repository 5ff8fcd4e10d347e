"""A remote agent that misbehaves in a way of one's choice, and records what it is sent."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bos_testkit.asgi_server import asgi_server


def completed(*parts: Any, **fields: Any) -> dict[str, Any]:
    artifact = {"artifactId": "a", "parts": list(parts)}
    status = {"state": "TASK_STATE_COMPLETED"}
    return {"task": {"id": "t1", "contextId": "c1", "status": status, "artifacts": [artifact]}} | (
        fields
    )


@dataclass
class HostileAgent:
    """Speaks JSON-RPC by hand; every part can be replaced."""

    card: dict[str, Any] = field(default_factory=dict)
    """Fields of the card in place of the honest ones."""
    answer: Callable[[dict[str, Any]], Any] = lambda _: [completed({"text": "seen"})]
    """Events of a message, or a whole response."""
    respond: Callable[[Request], Response] | None = None
    """In place of everything."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    async def show(self, request: Request) -> Response:
        if self.respond is not None:
            return self.respond(request)
        interface = {
            "url": str(request.base_url) + "rpc",
            "protocolBinding": "JSONRPC",
            "protocolVersion": "1.0",
        }
        card = {
            "name": "Hostile",
            "description": "Looks.",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": True},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        }
        return JSONResponse({**card, **self.card})

    async def call(self, request: Request) -> Response:
        self.headers.append(dict(request.headers))
        call = json.loads(await request.body())
        self.methods.append(call["method"])
        if call["method"] != "SendStreamingMessage":
            error = {"code": -32601, "message": "no such method"}
            return JSONResponse({"jsonrpc": "2.0", "id": call["id"], "error": error})
        self.messages.append(call["params"]["message"])
        answer = self.answer(call["params"])
        return answer if isinstance(answer, Response) else events(answer)


def events(results: Iterable[Any]) -> Response:
    async def body() -> AsyncIterator[bytes]:
        for result in results:
            yield b"data: %s\n\n" % json.dumps({"jsonrpc": "2.0", "result": result}).encode()
            await asyncio.sleep(0)

    return StreamingResponse(body(), media_type="text/event-stream")


@asynccontextmanager
async def hostile(agent: HostileAgent) -> AsyncIterator[str]:
    routes = [
        Route("/.well-known/agent-card.json", agent.show),
        Route("/rpc", agent.call, methods=["POST"]),
    ]
    async with asgi_server(Starlette(routes=routes)) as url:
        yield url
