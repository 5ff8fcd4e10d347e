"""Sending the calls of one agent: attempts, what the endpoint takes, and the tokens of each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from bos_llm.budget import Reservation, current_budget, prompt_bound
from bos_llm.endpoints.retry import final_error
from bos_llm.replies.thinking import ThinkFilter
from bos_llm.replies.wire import ForeignReply, Reply, ReplyBuilder, ReportedError, TokenCount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from bos_llm.endpoints.capabilities import Ladder
    from bos_llm.endpoints.endpoint import Endpoint, ReplyStream
    from bos_llm.endpoints.error_reply import Refusal
    from bos_llm.endpoints.observe import ObservedCall
    from bos_llm.endpoints.providers import Capabilities
    from bos_llm.endpoints.request import Request, RequestWriter
    from bos_llm.endpoints.retry import RetryPolicy
    from bos_llm.settings import ModelSettings

R = TypeVar("R")
Body = dict[str, Any]

_MAX_LESSONS: Final = 5
"""Parameters that one attempt can find refused and do without."""
_REFUSING_STATUS: Final = frozenset((400, 404, 413, 422))
CHARS_PER_TOKEN: Final = 4


@dataclass(slots=True)
class _Sent(Generic[R]):
    """An attempt that got through; its tokens are still held."""

    result: R
    body: Body
    reserved: Reservation | None


@dataclass(slots=True)
class OpenStream:
    """A streamed reply, read up to its first text. Close ``stream`` when leaving it."""

    stream: ReplyStream
    whole: ReplyBuilder
    body: Body
    reserved: Reservation | None
    endpoint: Endpoint
    shown: ThinkFilter = field(default_factory=ThinkFilter)
    """Takes out what the model thinks aloud."""

    async def next_piece(self) -> str | None:
        """The next text, which may be empty; None at the end.

        Raises:
            BosError: the stream failed; the original error is not chained, like in ``RetryPolicy``.
        """
        try:
            chunks = await self.stream.next()
            return None if chunks is None else self.shown.feed(self.whole.add_all(chunks))
        except Exception as error:
            verdict = self.endpoint.judge(error)
            if verdict is None:
                raise
        raise final_error(verdict)

    def settle(self, tokens: TokenCount) -> None:
        """The reply said what it consumed."""
        _settle(self.reserved, tokens)

    def forfeit(self) -> None:
        """Usage stays unknown, unless it was reported already."""
        if self.reserved is not None:
            self.reserved.forfeit()


class Caller:
    """Sends requests of one agent; safe to share.

    Args:
        writer: Writes their bodies.
        ladder_of: What the model is known to take at an endpoint, shared with other agents.
        settings: Limits and times.
        endpoint: The endpoint for the task at hand.
        retry: When to try again.
    """

    def __init__(
        self,
        writer: RequestWriter,
        ladder_of: Callable[[Endpoint | None], Ladder],
        settings: ModelSettings,
        endpoint: Callable[[], Endpoint],
        retry: RetryPolicy,
    ) -> None:
        self._writer = writer
        self._ladder_of = ladder_of
        self._settings = settings
        self._endpoint = endpoint
        self._retry = retry

    @property
    def thinks(self) -> bool:
        """Whether the model thinks before it replies."""
        return self._writer.thinks(self._ladder_of(None).now)

    async def whole(self, request: Request, call: ObservedCall) -> tuple[Reply, TokenCount]:
        """A whole reply, and what it consumed."""
        self._writer.check(request.messages)
        endpoint = self._endpoint()

        async def send(body: Body, timeout_s: float) -> Reply:
            try:
                if self._writer.reads_streams:
                    return await self._read(endpoint, body, timeout_s)
                reply = await endpoint.complete(body, timeout_s)
                if len(reply.text) > self._settings.max_reply_chars:
                    raise ForeignReply("a reply without an end")
                return reply
            except Exception as error:
                refusal = endpoint.refused(error)
                if refusal is None or not refusal.bad_generation:
                    raise
                # What the model wrote is no JSON, says its endpoint: ours to read, or to mend.
                return Reply(text=refusal.failed_generation, finish_reason="stop")

        async def attempt(timeout_s: float) -> tuple[Reply, TokenCount]:
            sent = await self._send(endpoint, request, call, send, timeout_s)
            tokens = count_tokens(sent.body, sent.result)
            _settle(sent.reserved, tokens)
            return sent.result, tokens

        retry = self._retry_of(request)
        return await retry.run(attempt, endpoint.judge, call.retrying, endpoint.breaker)

    async def stream(self, request: Request, call: ObservedCall) -> OpenStream:
        """A streamed reply. A failure before its first text is tried again."""
        self._writer.check(request.messages)
        endpoint = self._endpoint()

        async def send(body: Body, timeout_s: float) -> tuple[ReplyStream, ReplyBuilder]:
            idle_s = self._settings.stream_idle_timeout_s
            stream = await endpoint.stream(body, timeout_s, idle_s)
            try:
                whole = ReplyBuilder(self._settings.max_reply_chars)
                while not whole.text and (chunks := await _next(stream, whole)) is not None:
                    whole.add_all(chunks)
                if whole.is_blank:
                    raise ForeignReply("a stream without a chunk")
            except BaseException:
                await stream.close()
                raise
            return stream, whole

        async def attempt(timeout_s: float) -> OpenStream:
            sent = await self._send(endpoint, request, call, send, timeout_s)
            stream, whole = sent.result
            return OpenStream(stream, whole, sent.body, sent.reserved, endpoint)

        retry = replace(self._retry_of(request), timeout_s=self._settings.stream_timeout_s)
        return await retry.run(attempt, endpoint.judge, call.retrying, endpoint.breaker)

    def _retry_of(self, request: Request) -> RetryPolicy:
        return self._retry if request.patient else replace(self._retry, max_attempts=1)

    async def _read(self, endpoint: Endpoint, body: Body, timeout_s: float) -> Reply:
        """A whole reply by way of a stream, whose end the endpoint notices."""
        stream = await endpoint.stream(body, timeout_s, timeout_s)
        whole = ReplyBuilder(self._settings.max_reply_chars)
        async with stream:
            while (chunks := await _next(stream, whole)) is not None:
                whole.add_all(chunks)
        if whole.is_blank:
            raise ForeignReply("a stream without a chunk")
        reply = whole.reply()
        if reply.finish_reason is None and reply.tokens is None:
            raise ConnectionError("a stream broke off")
        return reply

    async def _send(
        self,
        endpoint: Endpoint,
        request: Request,
        call: ObservedCall,
        send: Callable[[Body, float], Awaitable[R]],
        timeout_s: float,
    ) -> _Sent[R]:
        """One attempt, repeated at once in other words while the endpoint refuses a parameter.

        What that taught is kept only if the endpoint took it in the end.
        """
        clock = asyncio.get_running_loop().time
        ladder = self._ladder_of(endpoint)
        takes, before, known = ladder.now, ladder.now, len(ladder.lessons)
        ends_at: float | None = None
        lessons_left = _MAX_LESSONS
        while True:
            body = self._writer.body(request, takes)
            reserved, body = await _reserve(body, takes)
            # Waiting for tokens of others is no time of the endpoint's.
            ends_at = clock() + timeout_s if ends_at is None else ends_at
            try:
                result = await send(body, max(0.0, ends_at - clock()))
            except BaseException as error:
                give_up(reserved, endpoint, error)
                refusal = endpoint.refused(error)
                if refusal is None or refusal.status not in _REFUSING_STATUS:
                    raise
                changed = _learned(ladder, takes, refusal, body) if lessons_left else None
                verdict = endpoint.judge_refusal(refusal, body.keys())
            else:
                return _Sent(result, body, reserved)
            if changed is None:
                if len(ladder.lessons) > known:
                    ladder.unlearn(before, known)
                endpoint.breaker.succeeded()  # it answers, be it with a refusal
                raise verdict.error  # not chained: the original holds what the endpoint wrote
            if len(ladder.lessons) > known:
                call.adapting(ladder.lessons[-1])
            takes = changed
            lessons_left -= 1


def _learned(
    ladder: Ladder, takes: Capabilities, refusal: Refusal, body: Body
) -> Capabilities | None:
    limit = body.get(takes.limit)
    return ladder.learn(takes, refusal, body.keys(), limit if isinstance(limit, int) else 0)


async def _next(stream: ReplyStream, whole: ReplyBuilder) -> Sequence[Reply] | None:
    """The next chunks. An error after the first of them comes too late to cost nothing."""
    try:
        return await stream.next()
    except ReportedError:
        if whole.is_blank:
            raise
    raise ConnectionError("a stream broke off")


def count_tokens(body: Body, reply: Reply) -> TokenCount:
    """Usage of a call. Some servers count nothing: an estimate serves better than zero."""
    if reply.tokens is not None:
        return reply.tokens
    sent = sum(len(message["content"]) for message in body["messages"])
    return TokenCount(sent // CHARS_PER_TOKEN, len(reply.text) // CHARS_PER_TOKEN)


async def _reserve(body: Body, takes: Capabilities) -> tuple[Reservation | None, Body]:
    """Tokens for one attempt, and the request with its reply bounded by them."""
    budget = current_budget()
    if budget is None:
        return None, body
    limit = body.get(takes.limit)
    reserved = await budget.reserve(
        prompt_bound(body), limit if isinstance(limit, int) and limit > 0 else None
    )
    bounded = takes.limit != "none" and takes.limit in body
    return reserved, {**body, takes.limit: reserved.reply_tokens} if bounded else body


def _settle(reserved: Reservation | None, tokens: TokenCount) -> None:
    if reserved is not None:
        reserved.settle(tokens.input_tokens + tokens.output_tokens)


def give_up(reserved: Reservation | None, endpoint: Endpoint, error: BaseException) -> None:
    """Calls that no model has worked on are not billed; others may have cost all they could."""
    if reserved is None:
        return
    verdict = endpoint.judge(error) if isinstance(error, Exception) else None
    if verdict is not None and verdict.turned_away:
        reserved.settle(0)
    reserved.forfeit()
