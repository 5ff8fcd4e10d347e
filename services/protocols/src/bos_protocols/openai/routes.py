"""The routes of OpenAI's API."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.routing import Route

from bos_errors import BosError, DeadlineExceeded, InvalidArgument, NotFound
from bos_protocols.openai.completion import CompletionMaker
from bos_protocols.openai.errors import as_the_client_asked, error_content, error_reply
from bos_protocols.openai.parts import Part, events_of, part_of, read_stored
from bos_protocols.openai.requests import MODEL, ChatRequest, ResponsesRequest, agents_of, parsed
from bos_protocols.openai.response import ResponseMaker
from bos_protocols.openai.resume import after_messages, after_response, options_of, submit
from bos_protocols.openai.sse import sse, stream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from bos_client import BosClient
    from bos_protocols.caller import Gateway

_CANCEL_WAIT_S = 10.0
_ECHOED = ("model", "instructions", "previous_response_id", "background", "metadata")


def openai_routes(gateway: Gateway) -> list[Route]:
    """The routes, answered by the gateway as the caller of each request."""
    endpoint = _Endpoint(gateway)
    return [
        Route("/v1/chat/completions", _answering(endpoint.complete, "messages"), methods=["POST"]),
        Route("/v1/responses", _answering(endpoint.respond, "input"), methods=["POST"]),
        Route("/v1/responses/{response_id}", _answering(endpoint.retrieve), methods=["GET"]),
        Route("/v1/responses/{response_id}/cancel", _answering(endpoint.cancel), methods=["POST"]),
        Route("/v1/models", _answering(endpoint.models), methods=["GET"]),
        Route("/v1/models/{model:path}", _answering(endpoint.model), methods=["GET"]),
    ]


def _answering(
    handler: Callable[[Request], Awaitable[Response]], said: str = ""
) -> Callable[[Request], Awaitable[Response]]:
    """The handler, with errors in OpenAI's form."""

    @wraps(handler)
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except BosError as error:
            return error_reply(as_the_client_asked(error, said))

    return answer


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """The handlers."""

    gateway: Gateway

    async def complete(self, request: Request) -> Response:
        asked = await parsed(ChatRequest, request)
        client, public_url = self._caller(request)
        talk = asked.talk()
        options = options_of(asked.prefer_agents, talk.system_prompt, _key(request))
        if named := (asked.metadata or {}).get("conversation_id"):
            options["conversation_id"] = named
            part = await submit(client, talk, options)
        else:
            part = await after_messages(client, talk, options, public_url)
        maker = CompletionMaker(part, asked.model, public_url)
        if asked.stream:
            usage = bool(asked.stream_options and asked.stream_options.include_usage)
            return self._stream(_chunks(client, maker, include_usage=usage))
        try:
            async with aclosing(events_of(client, part)) as events:
                async for event in events:
                    for _ in maker.take(event):
                        pass
        except DeadlineExceeded as error:
            raise DeadlineExceeded(f"{error.message} It is {part.response_id}.") from error
        return JSONResponse(maker.completion())

    async def respond(self, request: Request) -> Response:
        asked = await parsed(ResponsesRequest, request)
        client, public_url = self._caller(request)
        talk = asked.talk()
        options = options_of(asked.prefer_agents, talk.system_prompt, _key(request))
        if asked.previous_response_id:
            previous = part_of(asked.previous_response_id)
            part = await after_response(client, previous, talk, options)
        else:
            if asked.conversation_id:
                options["conversation_id"] = asked.conversation_id
            part = await submit(client, talk, options)
        echo = asked.model_dump(include=set(_ECHOED), exclude_none=True)
        if asked.store is not None:
            echo["store"] = asked.store
        maker = ResponseMaker(part, public_url, echo)
        if asked.stream:
            return self._stream(_events(client, maker))
        if asked.background:
            await read_stored(client, part, maker.take, 0.0)
        else:
            await _to_the_end(client, maker)
        return JSONResponse(maker.response())

    async def retrieve(self, request: Request) -> Response:
        client, public_url = self._caller(request)
        part = part_of(request.path_params["response_id"])
        query = request.query_params
        after = query.get("starting_after", "-1")
        if after != "-1" and not (after.isascii() and after.isdigit() and len(after) < 18):
            raise InvalidArgument.field("starting_after", "must be a sequence_number")
        maker = ResponseMaker(part, public_url, starting_after=int(after))
        if query.get("stream", "").lower() in ("true", "1"):
            await client.get_run(part.run_id)
            return self._stream(_events(client, maker))
        await read_stored(client, part, maker.take)
        return JSONResponse(maker.response())

    async def cancel(self, request: Request) -> Response:
        """Cancel the run; the answer is the part of it that ends so."""
        client, public_url = self._caller(request)
        part = part_of(request.path_params["response_id"])
        await client.cancel(part.run_id)
        await client.get_run(part.run_id, wait_s=_CANCEL_WAIT_S)
        while True:
            maker = ResponseMaker(part, public_url)
            end = await read_stored(client, part, maker.take)
            if end is None or not end.HasField("approval_requested"):
                return JSONResponse(maker.response())
            part = Part(part.run_id, end.sequence)

    async def models(self, request: Request) -> Response:
        client, _ = self._caller(request)
        names = [MODEL, *(f"{MODEL}/{info.card.name}" for info in await client.agents())]
        return JSONResponse({"object": "list", "data": [_model(name) for name in names]})

    async def model(self, request: Request) -> Response:
        client, _ = self._caller(request)
        name = request.path_params["model"]
        known = {info.card.name for info in await client.agents()}
        if not known.issuperset(agents_of(name)):
            raise NotFound(f"There is no model {name[:100]!r}.", reason="MODEL_NOT_FOUND")
        return JSONResponse(_model(name))

    def _caller(self, request: Request) -> tuple[BosClient, str]:
        headers = request.headers
        return self.gateway.client(headers), self.gateway.public_url(headers)

    def _stream(self, events: AsyncGenerator[bytes, None]) -> Response:
        return stream(events, self.gateway.settings.heartbeat_s)


async def _to_the_end(client: BosClient, maker: ResponseMaker) -> None:
    """Follow the part to its end; one that takes longer than is waited for is left in progress."""
    try:
        async with aclosing(events_of(client, maker.part)) as events:
            async for event in events:
                maker.take(event)
    except DeadlineExceeded:
        return


async def _events(client: BosClient, maker: ResponseMaker) -> AsyncGenerator[bytes, None]:
    number = maker.starting_after
    try:
        async with aclosing(events_of(client, maker.part)) as events:
            async for event in events:
                for made in maker.take(event):
                    number = made["sequence_number"]
                    yield sse(made, made["type"])
    except BosError as error:
        # Not the number of an event: a client resumes behind the last event that had one.
        content = {**error_content(error), "type": "error", "sequence_number": max(number, 0)}
        yield sse(content, "error")


async def _chunks(
    client: BosClient, maker: CompletionMaker, *, include_usage: bool
) -> AsyncGenerator[bytes, None]:
    try:
        async with aclosing(events_of(client, maker.part)) as events:
            async for event in events:
                for chunk in maker.take(event):
                    yield sse(chunk)
        if include_usage:
            yield sse(maker.usage_chunk())
        yield sse_done()
    except BosError as error:
        yield sse({"error": error_content(error)})


def sse_done() -> bytes:
    """The end of a stream of chunks."""
    return b"data: [DONE]\n\n"


def _key(request: Request) -> str | None:
    """The caller's own key of the request, under which it can be repeated."""
    return request.headers.get("idempotency-key")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "bos"}
