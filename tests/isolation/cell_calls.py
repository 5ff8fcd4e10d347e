"""One call, made for real, and everything that came back of it: what was said, and beside it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2, status_pb2

from .public_rpcs import PublicRpc

if TYPE_CHECKING:
    from .isolation_harness import IsolationHarness

Metadata = tuple[tuple[str, str], ...]

TIMEOUT_S = 60.0
STATUS_OF = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 400,
}
"""The status that HTTP must have for a code."""
_STATUS = "grpc-status-details-bin"
_LOST = "Internal error from Core"


@dataclass(frozen=True)
class Heard:
    code: str
    """Name of the gRPC code; over HTTP the one that the body names, if the status fits it."""
    reason: str
    text: str
    """All that came back: answer or message, details, metadata or headers."""
    body: str = ""
    """Over HTTP."""
    message: str = ""
    """Of an error."""

    @property
    def outcome(self) -> tuple[str, str]:
        return self.code, self.reason

    @property
    def shape(self) -> tuple[str, str, str]:
        return self.code, self.reason, self.message


def bearer(token: str) -> Metadata:
    return (("authorization", f"Bearer {token}"),)


def _started(
    channel: grpc.aio.Channel, rpc: PublicRpc, messages: list[Message], metadata: Metadata
) -> Any:
    make = channel.stream_stream if rpc.method.client_streaming else channel.unary_stream
    return make(
        rpc.path,
        request_serializer=type(messages[0]).SerializeToString,
        response_deserializer=GetMessageClass(rpc.method.output_type).FromString,
    )(
        _each(messages) if rpc.method.client_streaming else messages[0],
        timeout=TIMEOUT_S,
        metadata=metadata,
    )


async def answers_of(
    channel: grpc.aio.Channel, rpc: PublicRpc, messages: list[Message], metadata: Metadata
) -> list[Any]:
    """Every message that comes back of a call that succeeds."""
    return [each async for each in _started(channel, rpc, messages, metadata)]


async def call_grpc(
    channel: grpc.aio.Channel, rpc: PublicRpc, message: Message, metadata: Metadata
) -> Heard:
    """Call it; of a stream, up to its first message."""
    while True:
        heard = await _heard(_started(channel, rpc, rpc.messages(message), metadata))
        # The client says so of its own, in place of the status, if that came while it was sending.
        if not (rpc.method.client_streaming and _LOST in heard.text):
            return heard


async def _each(messages: list[Message]) -> AsyncIterator[Message]:
    for message in messages:
        yield message


async def call_silently(channel: grpc.aio.Channel, path: str, metadata: Metadata) -> Heard:
    """Call it without a message: callers without the right are refused by their headers."""
    call: Any = channel.stream_stream(path)(timeout=TIMEOUT_S, metadata=metadata)
    return await _heard(call)


async def _heard(call: Any) -> Heard:
    try:
        first = await call.read()
        beside = [*(await call.initial_metadata() or ())]
        if first is grpc.aio.EOF:
            beside += [*(await call.trailing_metadata() or ())]
            first = ""
        return Heard("OK", "", f"{first}\n{beside}")
    except grpc.aio.AioRpcError as error:
        info = error_details_pb2.ErrorInfo()
        said = [str(error.details()), str(error.debug_error_string())]
        for key, value in (*(error.initial_metadata() or ()), *(error.trailing_metadata() or ())):
            said.append(f"{key}: {value!r}")
            if key == _STATUS and isinstance(value, bytes):
                status = status_pb2.Status.FromString(value)
                said.append(str(status))
                for detail in status.details:
                    detail.Unpack(info)
        text = "\n".join(said)
        return Heard(error.code().name, info.reason, text, message=error.details() or "")
    finally:
        call.cancel()


async def call_http(
    http: aiohttp.ClientSession,
    verb: str,
    url: str,
    metadata: Metadata,
    body: Any = None,
    accept: str | None = None,
) -> Heard:
    """Call it over HTTP; of a stream of events, up to the first one. A form is sent as one."""
    form = isinstance(body, aiohttp.FormData)
    sent = {"data": body} if form else {"json": body}
    headers = {**dict(metadata), **({"Accept": accept} if accept else {})}
    async with http.request(verb, url, **sent, headers=headers, allow_redirects=False) as response:
        beside = "\n".join(f"{key}: {value}" for key, value in response.headers.items())
        if "event-stream" in response.headers.get("Content-Type", ""):
            content = (await _first_event(response)).decode()
        else:
            content = (await response.read()).decode("utf-8", "replace")
    text = f"{response.status}\n{beside}\n{content}"
    if response.status < 400:
        return Heard("OK", "", text, content)
    code, reason, message = _of_body(content)
    if STATUS_OF.get(code) != response.status:
        code = f"{code} with status {response.status}"
    return Heard(code, reason, text, content, message)


async def _first_event(response: aiohttp.ClientResponse) -> bytes:
    """Up to its data; comments and what is to be retried when stand before it."""
    line = content = await response.content.readline()
    while line and not line.startswith(b"data:"):
        line = await response.content.readline()
        content += line
    return content


def _of_body(content: str) -> tuple[str, str, str]:
    """Code, reason and message of an error of REST, or of mcp_db, which names a reason alone."""
    try:
        body = json.loads(content)
        if isinstance(body["error"], str):
            return "UNAUTHENTICATED", str(body["reason"]), ""
        details = body["error"].get("details", [])
        (info,) = [each for each in details if each["@type"].endswith("ErrorInfo")]
        error = body["error"]
        return str(error["status"]), str(info["reason"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return "HTTP", "", ""


async def ways(
    services: IsolationHarness,
    channel: grpc.aio.Channel,
    rpc: PublicRpc,
    message: Message,
    metadata: Metadata,
) -> dict[str, Heard]:
    """The answers to one call over gRPC and over each of its HTTP bindings."""
    heard = {"gRPC": await call_grpc(channel, rpc, message, metadata)}
    for binding in rpc.bindings:
        verb, path, body = binding.request(message)
        heard[f"REST {binding.verb} {binding.template}"] = await call_http(
            services.http, verb, services.rest_url + path, metadata, body
        )
    return heard
