"""Endpoint of one provider and its keys: the only module that knows the ``openai`` package.

It calls ``client.post(..., cast_to=object)`` instead of ``chat.completions.create``: the same
authentication, transport and exceptions, without transforming every parameter and building typed
objects, which is most of the CPU of a call (README). Streams are read piece by piece as the
network delivers them.

A key that is turned away rests, and the next one is tried at once, within the same attempt: the
retry policy, and the bill for the tokens, see one attempt with one outcome. Only when no key is
left does the failure come out, as it would with a single key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

import aiohttp
import httpx2
import openai
from openai import AsyncAzureOpenAI, AsyncOpenAI, AsyncStream

from bos_errors import BosError
from bos_llm.endpoints.breaker import CircuitBreaker
from bos_llm.endpoints.error_reply import is_about_request, read_refusal
from bos_llm.endpoints.identity import AzureTokens
from bos_llm.endpoints.keys import KeyPool
from bos_llm.endpoints.refusals import judge_refusal, key_trouble
from bos_llm.endpoints.retry import Verdict
from bos_llm.endpoints.sse import EventReader
from bos_llm.endpoints.transport import ModelHttpClient, retry_after_s
from bos_llm.errors import MODEL_TIMEOUT, ModelRateLimited, ModelUnavailable
from bos_llm.replies.vectors import VectorReply, read_vectors
from bos_llm.replies.wire import Reply, ReportedError, read_chunk, read_completion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from pydantic import SecretStr

    from bos_llm.agent_config import Access
    from bos_llm.endpoints import keys
    from bos_llm.endpoints.error_reply import Refusal
    from bos_llm.endpoints.profiles import KeysNow

R = TypeVar("R")

_PATH = "/chat/completions"
_EMBEDDINGS_PATH = "/embeddings"
_CONNECT_TIMEOUT_S = 5.0
_NO_KEY = "none"  # the client insists on a key where a local server needs none
_MAX_EVENT_BYTES = 1024 * 1024
_DRAIN_S = 0.1
_DONE = b"[DONE]"
_LOADING_LOOK_S = 1.0
_NO_CONNECTION = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
)
# Of errors that an endpoint reports without a status.
_BROKEN_STATUS = 502
_REFUSED_STATUS = 400


class _KeysRest(Exception):
    """Every key was turned away, and at least one of them may soon be used again.

    Args:
        retry_after_s: When, as far as endpoints said so.
    """

    def __init__(self, retry_after_s: float | None) -> None:
        super().__init__("keys rest")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class _Ring:
    """Keys of one time, with what they are used through."""

    keys: tuple[SecretStr, ...] = field(repr=False)
    clients: Sequence[AsyncOpenAI] = field(repr=False)
    pool: KeyPool


class Endpoint:
    """A pooled client of one provider with the keys of one profile; safe to share between tasks.

    Args:
        access: How to reach it.
        key_file: Where its keys are from, if they may change under way.
        set_aside_s: How long a key rests that is not valid or has no quota, and longest rest of one
            that is too busy.
        on_rest: Called when a key is turned away: its index, why, and how many seconds it rests.
        breaker: Shared by all that call the same address.
        sleep: Waits while a server loads its model; tests pass their own.

    Raises:
        ConfigurationError: a managed identity is wanted and its package is not installed.
    """

    def __init__(
        self,
        access: Access,
        *,
        key_file: KeysNow | None = None,
        set_aside_s: float = 300.0,
        on_rest: Callable[[int, keys.Refusal, float], None] | None = None,
        breaker: CircuitBreaker | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.access = access
        self.breaker = breaker or CircuitBreaker()
        self._sleep = sleep
        self._on_rest = on_rest
        self._tokens = AzureTokens(access.client_id) if access.managed_identity else None
        self._transport = ModelHttpClient()
        self._set_aside_s = set_aside_s
        self._key_file = None if access.managed_identity else key_file
        self._ring = self._make_ring(
            ()
            if access.managed_identity
            else access.keys
            if self._key_file is None
            else self._key_file.current()
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
        if self._tokens is not None:
            await self._tokens.close()

    async def complete(self, body: dict[str, Any], timeout_s: float) -> Reply:
        """One attempt of a call that is answered as a whole.

        Raises:
            Exception: see :meth:`judge`.
        """
        return read_completion(await self._post(_PATH, body, timeout_s))

    async def embed(self, body: dict[str, Any], timeout_s: float) -> VectorReply:
        """One attempt of an embeddings call.

        Raises:
            Exception: see :meth:`judge`.
        """
        reply = await self._post(_EMBEDDINGS_PATH, body, timeout_s)
        return read_vectors(reply, len(body["input"]))

    async def _post(self, path: str, body: dict[str, Any], timeout_s: float) -> object:
        ends_at = asyncio.get_running_loop().time() + timeout_s
        async with asyncio.timeout_at(ends_at):
            return await self._when_loaded(
                lambda client: client.post(
                    path, cast_to=object, body=body, options={"timeout": _timeout(timeout_s)}
                ),
                ends_at,
            )

    async def stream(
        self,
        body: dict[str, Any],
        timeout_s: float,
        idle_timeout_s: float,
    ) -> ReplyStream:
        """Open a streamed reply, at most ``timeout_s`` long and ``idle_timeout_s`` silent.

        Raises:
            Exception: see :meth:`judge`.
        """
        ends_at = asyncio.get_running_loop().time() + timeout_s
        async with asyncio.timeout_at(ends_at):
            chunks = await self._when_loaded(
                lambda client: client.post(
                    _PATH,
                    cast_to=object,
                    body={**body, "stream": True},
                    options={"timeout": _timeout(min(timeout_s, idle_timeout_s), timeout_s)},
                    stream=True,
                    stream_cls=AsyncStream[object],
                ),
                ends_at,
            )
        return ReplyStream(chunks, ends_at)

    async def served_models(self, timeout_s: float) -> object:
        """What the endpoint lists as its models, as it says it; for operators.

        Raises:
            Exception: see :meth:`judge`.
        """
        async with asyncio.timeout(timeout_s):
            return await self._with_keys(
                lambda client: client.get(
                    "/models", cast_to=object, options={"timeout": _timeout(timeout_s)}
                )
            )

    async def _when_loaded(self, send: Callable[[AsyncOpenAI], Awaitable[R]], ends_at: float) -> R:
        """Send; if the server is still loading its model, wait for that and send once more."""
        clock = asyncio.get_running_loop().time
        try:
            return await self._with_keys(send)
        except openai.APIStatusError as error:
            if not refusal_of(error).loading:
                raise
            still_loading = error
        while await self._is_loading():
            if clock() + _LOADING_LOOK_S >= ends_at:
                raise still_loading
            await self._sleep(_LOADING_LOOK_S)
        return await self._with_keys(send)

    async def _is_loading(self) -> bool:
        """Whether llama.cpp's server says so; others have no such page, and are asked again."""
        client = self._ring.clients[0]
        health = str(client.base_url).rstrip("/").removesuffix("/v1") + "/health"
        try:
            await client.get(
                health, cast_to=object, options={"timeout": _timeout(_CONNECT_TIMEOUT_S)}
            )
        except openai.APIStatusError as error:
            return refusal_of(error).loading
        except openai.APIError:
            return False  # the call itself will say what is wrong
        return False

    def _make_ring(self, keys: tuple[SecretStr, ...]) -> _Ring:
        # One client per key, over the same connections: a key never travels with another's request.
        clients = [
            _client(self.access, key, self._tokens, self._transport) for key in keys or (None,)
        ]
        return _Ring(keys, clients, KeyPool(len(clients), set_aside_s=self._set_aside_s))

    def _keys_now(self, *, at_once: bool = False) -> _Ring:
        """The keys as their file holds them; those that it no longer holds are not used again."""
        if self._key_file is not None:
            keys = self._key_file.look() if at_once else self._key_file.current()
            if keys != self._ring.keys:
                self._ring = self._make_ring(keys)
        return self._ring

    async def _with_keys(self, send: Callable[[AsyncOpenAI], Awaitable[R]]) -> R:
        """Send with the keys as they are now, and once more if they have changed by then."""
        ring = self._keys_now()
        try:
            return await self._with(ring, send)
        except openai.APIStatusError as error:
            if key_trouble(refusal_of(error)) != "rejected":
                raise
            renewed = self._keys_now(at_once=True)
            if renewed is ring:
                raise
        return await self._with(renewed, send)

    async def _with(self, ring: _Ring, send: Callable[[AsyncOpenAI], Awaitable[R]]) -> R:
        """Send with one key after the other until one is not turned away."""
        index, tried = ring.pool.pick(), set[int]()
        while index is not None:
            tried.add(index)
            try:
                reply = await send(ring.clients[index])
            except openai.APIStatusError as error:
                refusal = refusal_of(error)
                why = key_trouble(refusal)
                if why is None:
                    raise
                asked_s = refusal.retry_after_s
                rest_s = ring.pool.turned_away(index, why, asked_s)
                if self._on_rest is not None:
                    self._on_rest(index, why, rest_s)
                index = ring.pool.pick(tried)
                if index is None:
                    wait_s = ring.pool.wait_s()
                    if len(ring.pool) == 1 or wait_s is None:
                        raise
                    unsaid = why == "rate_limited" and asked_s is None
                    raise _KeysRest(None if unsaid else wait_s) from None
            else:
                ring.pool.worked(index)
                return reply
        raise AssertionError("a first key is always picked")

    def refused(self, error: BaseException) -> Refusal | None:
        """The error reply behind a failed attempt; None if it failed otherwise."""
        if isinstance(error, openai.APIStatusError):
            return refusal_of(error)
        return _reported(error) if isinstance(error, ReportedError) else None

    def judge_refusal(self, refusal: Refusal, sent: Collection[str] = ()) -> Verdict:
        """Classify an error reply.

        Args:
            refusal: The reply.
            sent: Parameters of the request, of which the endpoint may not take one.
        """
        return judge_refusal(refusal, self.access, sent)

    def judge(self, error: Exception) -> Verdict | None:
        """Classify a failed attempt; None for an exception that is not one."""
        if isinstance(error, BosError):
            return None
        refusal = self.refused(error)
        if refusal is not None:
            return self.judge_refusal(refusal)
        if isinstance(error, _KeysRest):
            limited = ModelRateLimited(
                f"The model endpoint ({self.access.provider}) admits no more calls for now, with "
                "any of its keys.",
                metadata={"http_status": "429"},
                retry_after_s=error.retry_after_s,
            )
            return Verdict(
                limited, retryable=True, retry_after_s=error.retry_after_s, turned_away=True
            )
        timed_out = isinstance(error, TimeoutError | openai.APITimeoutError)
        # The client also calls a connection that was refused a time-out.
        if timed_out and not _never_connected(error):
            # Not repeated: the second call would take as long, beside what is left of the first.
            return self._unavailable("did not answer in time", MODEL_TIMEOUT, retryable=False)
        if isinstance(error, openai.APIError | aiohttp.ClientError | OSError):
            return self._unavailable(
                "could not be reached or broke off",
                turned_away=_never_connected(error),
                endpoint_failed=True,
            )
        if isinstance(error, ValueError | RecursionError):
            # Invalid JSON, or JSON of another API: a proxy or a wrong address.
            return self._unavailable(
                f"did not answer as an OpenAI-compatible API; check {self.access.url_variable}",
                "MODEL_REPLY_FOREIGN",
            )
        return None

    def _unavailable(
        self,
        what: str,
        reason: str | None = None,
        *,
        turned_away: bool = False,
        retryable: bool = True,
        endpoint_failed: bool | None = None,
    ) -> Verdict:
        text = f"The model endpoint ({self.access.provider}) {what}."
        error = ModelUnavailable(text, reason=reason)
        return Verdict(error, retryable, turned_away=turned_away, endpoint_failed=endpoint_failed)


class ReplyStream:
    """The chunks of a streamed reply; an async context manager that ends the HTTP response."""

    def __init__(self, stream: AsyncStream[object], ends_at: float) -> None:
        self._response = stream.response
        self._pieces = self._response.aiter_bytes()
        self._ends_at = ends_at
        self._events = EventReader(_MAX_EVENT_BYTES)
        self._done = False
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the HTTP response, whether or not it was read to its end."""
        await self._response.aclose()

    async def next(self) -> Sequence[Reply] | None:
        """The next chunks, all that arrived together, at least one; None after the last.

        Raises:
            Exception: see :meth:`Endpoint.judge`.
        """
        if self._failure is not None:
            raise self._failure
        async with asyncio.timeout_at(self._ends_at):
            try:
                while not self._done and (piece := await anext(self._pieces, None)) is not None:
                    if chunks := self._chunks(piece):
                        return chunks
            except httpx2.TimeoutException as error:
                raise openai.APITimeoutError(request=self._response.request) from error
            except httpx2.RequestError as error:
                raise openai.APIConnectionError(request=self._response.request) from error
            if not self._done and (chunks := self._chunks(None)):
                self._done = True
                return chunks
            await self._drain()
        return None

    def _chunks(self, piece: bytes | None) -> list[Reply]:
        """The chunks that ``piece`` completes; None: what the end of the stream completes."""
        chunks: list[Reply] = []
        try:
            for data in self._events.end() if piece is None else self._events.feed(piece):
                if data.startswith(_DONE):
                    self._done = True
                    break
                chunks.append(read_chunk(json.loads(data)))
        except Exception as error:
            if not chunks:
                raise
            self._failure = error  # what came before it counts
        return chunks

    async def _drain(self) -> None:
        """Read what follows the end, usually nothing, so that the connection can be used again."""
        with contextlib.suppress(TimeoutError, httpx2.RequestError):
            async with asyncio.timeout(_DRAIN_S):
                async for _ in self._pieces:
                    pass


def _client(
    access: Access, secret: SecretStr | None, tokens: AzureTokens | None, transport: ModelHttpClient
) -> AsyncOpenAI:
    key = secret.get_secret_value() if secret is not None else _NO_KEY
    client: AsyncOpenAI
    if access.kind == "azure" and not access.api_version:
        # The v1 endpoint speaks like OpenAI's own; a token is asked for before every request.
        client = AsyncOpenAI(
            api_key=tokens or key,
            base_url=access.base_url,
            max_retries=0,
            http_client=transport,
        )
    elif access.kind == "azure":
        client = AsyncAzureOpenAI(
            azure_endpoint=access.base_url or "",
            api_key=None if tokens else key,
            azure_ad_token_provider=tokens,
            api_version=access.api_version,
            max_retries=0,
            http_client=transport,
        )
    else:
        client = AsyncOpenAI(
            api_key=key, base_url=access.base_url, max_retries=0, http_client=transport
        )
    if access.provider != "openai" or access.profile:
        # The package takes these from the environment (OPENAI_ORG_ID, OPENAI_PROJECT_ID,
        # OPENAI_CUSTOM_HEADERS) for every endpoint; they belong to OPENAI_API_KEY alone.
        client.organization = client.project = None
        client._custom_headers = {}
    return client


def refusal_of(error: openai.APIStatusError) -> Refusal:
    """The error reply, taken apart."""
    try:
        body: object = error.response.json()
    except (ValueError, RecursionError, httpx2.StreamError):
        body = None
    return read_refusal(error.status_code, body, retry_after_s(error.response.headers))


def _reported(error: ReportedError) -> Refusal:
    """An error inside of a reply with status 200, judged as if it were the status itself."""
    body = {
        "code": error.code,
        "type": error.type,
        "param": error.param,
        "message": error.text,
    }
    unsaid = _REFUSED_STATUS if is_about_request(error.code, error.type) else _BROKEN_STATUS
    return read_refusal(error.status or unsaid, body)


def _never_connected(error: BaseException | None) -> bool:
    """Whether the request cannot have been sent."""
    while error is not None:
        if isinstance(error, _NO_CONNECTION):
            return True
        error = error.__cause__ or error.__context__
    return False


def _timeout(read_s: float, whole_s: float | None = None) -> openai.Timeout:
    """Silence ends a call after ``read_s``; a connection may take longer, up to ``whole_s``."""
    connect_s = min(read_s if whole_s is None else whole_s, _CONNECT_TIMEOUT_S)
    return openai.Timeout(read_s, connect=connect_s)
