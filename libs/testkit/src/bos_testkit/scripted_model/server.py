"""A scripted stand-in for an OpenAI-compatible model endpoint.

It answers prepared prompts from fixtures (:mod:`bos_testkit.scripted_model.replies`), is honest
about any
other prompt, and shows the faults of real endpoints on demand (:class:`Knobs`). Tests and the
demo use it alike, at the HTTP boundary, so that everything above it is the real thing::

    async with ScriptedModel([Path("fixtures")]) as model:
        settings = ModelSettings(base_url=model.base_url, model="scripted")
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from bos_testkit.asgi_server import EmbeddedServer, listen
from bos_testkit.scripted_model import wire
from bos_testkit.scripted_model.faults import HTML, PROSE, TEXT_CALLS, Knobs, as_content
from bos_testkit.scripted_model.quirks import Quirks
from bos_testkit.scripted_model.replies import (
    AmbiguousPromptError,
    CaptureError,
    Fixture,
    load_fixtures,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bos_testkit.scripted_model.faults import Fault

    Improvise = Callable[[str | None, str], str | dict[str, Any] | None]
    """From the name of the schema asked for (None: text) and the prompt to what the model says."""

__all__ = [
    "TEXT_CALLS",
    "UNPREPARED",
    "Fixture",
    "Knobs",
    "Quirks",
    "RecordedRequest",
    "ScriptedModel",
]

UNPREPARED = (
    "I am a scripted stand-in for a language model and have no prepared reply for this. "
    "To use a real model, set OPENAI_API_KEY, or OPENAI_BASE_URL and BOS_MODEL."
)
_SECRET_HEADERS = frozenset({"authorization", "api-key", "x-api-key", "cookie"})
_ERROR_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded"}
_MAX_BODY_BYTES = 8 * 1024 * 1024
_KEPT_REQUESTS = 200


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One chat request as it arrived; secrets in headers are masked."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    model: str
    schema: str | None
    """Name of the JSON schema asked for, in the body or in the prompt; None for text."""
    stream: bool
    messages: Sequence[Mapping[str, Any]]
    prompt: str
    """The text of all messages."""
    prompt_tokens: int
    fixture: str | None
    """Name of the fixture that answers; None if none was prepared."""
    problem: str | None = None
    """Why the fixtures could not answer."""
    reply: str = ""
    """What the model said, or would have said if nothing had broken; empty if it was an error."""
    reply_tokens: int = 0
    status: int = 200
    key_end: str = ""
    """The last four characters of the key or token that was presented."""


class ScriptedModel:
    """The server, as an async context manager; several may run in one event loop.

    Args:
        fixtures: Files, folders of ``*.yaml`` files, or fixtures made in Python.
        host: Address to bind.
        port: Port to bind; 0 takes a free one.
        models: What ``/v1/models`` lists. Any other model name is answered just the same.
        keep: How many requests are kept, the last ones.
        key: Demanded of every request, as a bearer token or as Azure's ``api-key``; None: of none.
        improvise: Asked before the fixtures, for replies that depend on the prompt; None: none.
        fallback: Asked where no fixture fits; where it has no reply either, the model refuses.

    Raises:
        FixtureError: a fixture is wrong; the message names it and the fix.
    """

    def __init__(
        self,
        fixtures: Sequence[Path | Fixture] = (),
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        models: Sequence[str] = ("scripted",),
        keep: int = _KEPT_REQUESTS,
        key: str | None = None,
        improvise: Improvise | None = None,
        fallback: Improvise | None = None,
    ) -> None:
        self.knobs = Knobs()
        self.quirks = Quirks()
        self.requests: deque[RecordedRequest] = deque(maxlen=keep)
        self.calls = 0
        """Chat requests since the start."""
        self.input_tokens = 0
        self.output_tokens = 0
        """Tokens that replies since the start reported; those of streams only if asked for."""
        self.in_flight = 0
        """Chat requests that are being answered."""
        self.abandoned = 0
        """Chat requests whose client went away before the end."""
        self._book = load_fixtures(fixtures)
        self._key = key
        self._improvise = improvise
        self._fallback = fallback
        self._bind = (host, port)
        self._models = tuple(models)
        self._replies: set[asyncio.Task[None]] = set()
        self._server: EmbeddedServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._address = ""

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return f"http://{self._address}/v1"

    @property
    def azure_endpoint(self) -> str:
        """What an Azure OpenAI client takes as its endpoint."""
        return f"http://{self._address}"

    async def __aenter__(self) -> Self:
        listener = listen(self._bind)
        host, port = listener.getsockname()[:2]
        self._address = f"{host}:{port}"
        application = self._application()
        self._server = EmbeddedServer(
            application if self._key is None else _for_holders(self._key, application)
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        try:
            await self._server.wait_until_ready(self._serving)
        except BaseException:
            self._serving.cancel()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        assert self._serving is not None
        for reply in self._replies:
            reply.cancel()
        self._server.stop()
        await self._serving

    def _application(self) -> Starlette:
        return Starlette(
            routes=[
                *(
                    Route(f"{base}/chat/completions", _Asgi(self._chat), methods=["POST"])
                    for base in ("/v1", "/openai/v1", "/openai/deployments/{deployment}")
                ),
                Route("/v1/embeddings", self._embeddings, methods=["POST"]),
                Route("/v1/models", self._list_models, methods=["GET"]),
            ]
        )

    async def _list_models(self, request: Request) -> Response:
        entries = [{"id": name, "object": "model", "owned_by": "bos"} for name in self._models]
        return JSONResponse({"object": "list", "data": entries})

    async def _embeddings(self, request: Request) -> Response:
        try:
            return JSONResponse(wire.embeddings(await _json_body(request)))
        except ValueError as error:
            return _error(400, str(error))

    async def _chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body = await _json_body(request)
            call = wire.ChatCall.parse(body)
        except ClientDisconnect:
            return
        except ValueError as error:
            await _error(400, str(error))(scope, receive, send)
            return
        self.calls += 1
        schema = self.quirks.schema_of(call)
        refused = self.quirks.refusal(body, call)
        fault = self.knobs.take(schema, _key_of(request)) if refused is None else None
        found, answer, problem = self._find(call, schema)
        if fault is not None:
            answer = fault.spoil(answer)
        answer = self.quirks.say(answer, schema).limited(call.max_tokens)
        if problem is not None:
            response = _error(400, problem, code="fixture_problem")
        elif refused is not None:
            response = JSONResponse(dict(refused.body), status_code=refused.status)
        else:
            response = self._respond(call, schema, answer, fault)
        said = answer.said if response.status_code == 200 else ""
        self.requests.append(
            RecordedRequest(
                path=request.url.path,
                headers={
                    name: "***" if name in _SECRET_HEADERS else value
                    for name, value in request.headers.items()
                },
                body=body,
                model=call.model,
                schema=schema,
                stream=call.stream,
                messages=call.messages,
                prompt=call.prompt,
                prompt_tokens=wire.count_prompt_tokens(call.messages),
                fixture=None if found is None else found.name,
                problem=problem,
                reply=said,
                reply_tokens=wire.count_tokens(said),
                status=response.status_code,
                key_end=_key_of(request)[-4:],
            )
        )
        self.in_flight += 1
        try:
            await self._while_connected(receive, self._send_later(response, scope, receive, send))
        finally:
            self.in_flight -= 1

    def _find(
        self, call: wire.ChatCall, schema: str | None
    ) -> tuple[Fixture | None, wire.Answer, str | None]:
        """The fixture for a call, what it says, and why the fixtures are at fault if they are."""
        found: Fixture | None = None
        said = self._improvise(schema, call.prompt) if self._improvise is not None else None
        if said is not None:
            return None, wire.Answer(as_content(said)), None
        try:
            found = self._book.find(schema=schema, model=call.model, prompt=call.prompt)
            if found is not None:
                return found, wire.Answer(as_content(found.render(call.prompt))), None
        except (AmbiguousPromptError, CaptureError) as error:
            return found, _refusal(), str(error)
        if call.schema is not None and schema is None:
            return None, wire.Answer(PROSE), None  # the prompt did not ask for JSON
        said = self._fallback(schema, call.prompt) if self._fallback is not None else None
        if said is not None:
            return None, wire.Answer(as_content(said)), None
        return None, _refusal(), None

    def _respond(
        self, call: wire.ChatCall, schema: str | None, answer: wire.Answer, fault: Fault | None
    ) -> Response:
        if fault is not None:
            if fault.kind == "status":
                headers = {} if fault.retry_after is None else {"retry-after": fault.retry_after}
                return _error(fault.status, "an injected failure", code=fault.code, headers=headers)
            if fault.kind == "html":
                return HTMLResponse(HTML)
            if fault.kind == "malformed" and schema is None:
                media = "text/event-stream" if call.stream else "application/json"
                return Response(b'data: {"choices": [\n\n', media_type=media)
        call_id = f"chatcmpl-scripted-{self.calls}"
        broken_after = fault.after_chunks if fault is not None and fault.kind == "broken" else None
        if broken_after is None and (call.include_usage or not call.stream):
            reported = wire.usage(call, answer)
            self.input_tokens += reported["prompt_tokens"]
            self.output_tokens += reported["completion_tokens"]
        quirks = self.quirks
        if call.stream and not quirks.whole_for_stream:
            events = quirks.events(wire.chunks(call_id, call, answer))
            hang_after = quirks.hangs_after_chunks if quirks.hangs else None
            return _EventStream(events, self.knobs.chunk_delay_s, broken_after, hang_after)
        body = quirks.completion(wire.completion(call_id, call, answer), schema)
        return _HalfBody(json.dumps(body)) if broken_after is not None else JSONResponse(body)

    async def _send_later(
        self, response: Response, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if self.knobs.held is not None:
            await self.knobs.held.wait()
        if self.knobs.latency_s > 0:
            await asyncio.sleep(self.knobs.latency_s)
        if self.quirks.hangs and not (
            isinstance(response, _EventStream) and self.quirks.hangs_after_chunks
        ):
            await asyncio.Event().wait()
        await response(scope, receive, send)

    async def _while_connected(self, receive: Receive, reply: Coroutine[Any, Any, None]) -> None:
        knobs = self.knobs
        slow = knobs.latency_s > 0 or knobs.chunk_delay_s > 0 or knobs.held is not None
        if not slow and not self.quirks.hangs:
            await reply  # nothing to wait for, so nothing to watch
            return
        work = asyncio.create_task(reply)
        gone = asyncio.create_task(_disconnection(receive))
        self._replies.add(work)
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self.abandoned += 1
        finally:
            self._replies.discard(work)
            work.cancel()
            gone.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        if not work.cancelled():
            work.result()


class _Asgi:
    """An ASGI function as a route's endpoint; Starlette would wrap a plain one."""

    def __init__(self, serve: Any) -> None:
        self._serve = serve

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)


class _EventStream(Response):
    """Server-sent events, at a pace, and broken off where a fault asks for it."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: Iterator[bytes],
        delay_s: float,
        broken_after: int | None,
        hang_after: int | None,
    ) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._events = events
        self._delay_s = delay_s
        self._broken_after = broken_after
        self._hang_after = hang_after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for index, event in enumerate(self._events):
            if index == self._broken_after:
                return  # an ASGI server closes the connection of an unfinished response
            if index == self._hang_after:
                await asyncio.Event().wait()
            if index > 0 and self._delay_s > 0:
                await asyncio.sleep(self._delay_s)
            await _send_part(send, event, more=True)
        await _send_part(send, b"data: [DONE]\n\n", more=False)


class _HalfBody(Response):
    """A JSON body whose connection breaks half-way."""

    media_type = "application/json"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await _send_part(send, bytes(self.body[: len(self.body) // 2]), more=True)


def _key_of(request: Request) -> str:
    """The key of Azure OpenAI, or the bearer token."""
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    return request.headers.get("api-key", bearer)


def _for_holders(key: str, application: ASGIApp) -> ASGIApp:
    """The application for requests with the key; others are refused with 401."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = _key_of(Request(scope)).encode()
            if not hmac.compare_digest(given, key.encode()):
                await _error(401, "The key is missing or wrong.")(scope, receive, send)
                return
        await application(scope, receive, send)

    return guarded


def _refusal() -> wire.Answer:
    return wire.Answer(None, refusal=UNPREPARED)


def _error(
    status: int,
    message: str,
    *,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = wire.error(message, kind=kind, code=code or _ERROR_CODES.get(status, str(status)))
    return JSONResponse(body, status_code=status, headers=dict(headers or {}))


async def _json_body(request: Request) -> Any:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise ValueError(f"the body is larger than {_MAX_BODY_BYTES} bytes")
    try:
        return json.loads(body)
    except ValueError:
        raise ValueError("the body is not valid JSON") from None


async def _send_part(send: Send, body: bytes, *, more: bool) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
