"""The model of one agent: text, structured output, streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel

from bos_chassis.errors import ConfigurationError, InvalidArgument
from bos_llm.budget import Reservation, current_budget, prompt_bound
from bos_llm.errors import BudgetExhausted, ModelOutputInvalid, ModelRefused, ModelUnavailable
from bos_llm.messages import Message, assistant, user
from bos_llm.profiles import current_key_profile
from bos_llm.retry import final_error
from bos_llm.schema import JsonSchema, UnusableReply
from bos_llm.usage import Usage
from bos_llm.wire import ForeignReply, Reply, ReplyBuilder, TokenCount

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from bos_llm.endpoint import Endpoint, ReplyStream
    from bos_llm.observe import ObservedCall, Observer
    from bos_llm.prices import PriceTable
    from bos_llm.retry import RetryPolicy
    from bos_llm.settings import AgentModelConfig, ModelSettings

T = TypeVar("T", bound=BaseModel)

_CHARS_PER_TOKEN = 4
_MAX_REFUSAL_CHARS = 300
_MAX_SHOWN_REPLY_CHARS = 4000


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply in text; the last item of a stream."""

    text: str
    usage: Usage
    truncated: bool = False
    """Whether the token limit ended it."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of a streamed reply: all that arrived together."""

    text: str


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """A reply as a validated value."""

    value: T
    usage: Usage
    """Of the repair attempt as well."""
    repaired: bool


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A reply that is not the JSON asked for."""

    reply: str
    problem: str
    usage: Usage


class Model:
    """How one agent talks to its model. Get it from ``Models.for_agent``; safe to share.

    All calls keep to the deadline of the server call in progress and raise:

    * ``ModelNotConfigured``: no key or model is set, or the endpoint refuses them;
    * ``ConfigurationError``: there is no key profile of the name that the task asks for;
    * ``ModelUnavailable``, ``ModelRateLimited``: also after all retries;
    * ``ModelRequestRejected``: the endpoint does not accept this kind of request;
    * ``ModelRefused``: the model or a content filter declined;
    * ``ModelOutputInvalid``: the reply is empty, or not the JSON asked for;
    * ``InvalidArgument``: the messages are too long;
    * ``BudgetExhausted``: the tokens of the work in progress (``set_budget``) do not suffice;
    * ``DeadlineExceeded``: the time of the current call is used up.
    """

    def __init__(
        self,
        agent: str,
        config: AgentModelConfig,
        settings: ModelSettings,
        *,
        prices: PriceTable,
        endpoint: Callable[[], Endpoint],
        retry: RetryPolicy,
        observer: Observer,
    ) -> None:
        self.agent = agent
        self.config = config
        self._settings = settings
        self._prices = prices
        self._endpoint = endpoint
        self._retry = retry
        self._observer = observer
        self._shapes: dict[type[BaseModel], JsonSchema[Any]] = {}

    @property
    def configured(self) -> bool:
        """Whether everything is set that a call of the current task needs."""
        config = replace(self.config, keys=current_key_profile() or self.config.keys)
        try:
            return not self._settings.missing(self.agent, config)
        except ConfigurationError:
            return True  # the call itself says what is wrong with the profile

    async def text(
        self, messages: Sequence[Message], *, max_tokens: int | None = None
    ) -> Completion:
        """A reply in text."""
        body, endpoint = self._request(messages, max_tokens), self._endpoint()
        with self._observer.call("text") as call:
            reply, usage = await self._complete(endpoint, body, call)
            return self._completion(reply, usage)

    @property
    def tier(self) -> Literal["standard", "small"]:
        """What the model can be trusted with: ``small`` gets simpler calls, one thing at a time."""
        return self.config.tier

    async def structured(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        max_tokens: int | None = None,
        form_in: Literal["system", "last"] = "system",
    ) -> Structured[T]:
        """A reply as a value of ``schema``, a pydantic model.

        A reply that is not such a value is shown to the model once, with what is wrong with it.

        Args:
            messages: The conversation; the first one holds the instructions.
            schema: What the reply must be.
            max_tokens: Longest reply; None: as the settings say.
            form_in: Where the form of the reply is written down for models that must be told:
                at the end of the first message, or of the last one if the ones before it are
                shared with other calls and should stay the same for prompt caches.
        """
        shape = self._shape(schema)
        first = await self._structured(messages, shape, max_tokens, repaired=False)
        if isinstance(first, Structured):
            return first
        conversation = [*messages, *_repair(first, shape.name)]
        try:
            second = await self._structured(conversation, shape, max_tokens, repaired=True)
        except BudgetExhausted as error:
            error.usage = first.usage
            raise
        usage = first.usage + second.usage
        if isinstance(second, Structured):
            return Structured(second.value, usage, repaired=True)
        raise ModelOutputInvalid(
            "The model's reply could not be used, and asking once more did not help.",
            usage=usage,
            metadata={"schema": shape.name, "model": self.config.model},
        )

    async def stream(
        self, messages: Sequence[Message], *, max_tokens: int | None = None
    ) -> AsyncGenerator[TextDelta | Completion, None]:
        """The pieces of a reply as they arrive, then the whole as a :class:`Completion`.

        Failures before the first piece are retried; a later one ends the stream with
        ``ModelUnavailable``. Close the generator (``contextlib.aclosing``) when leaving early:
        that ends the HTTP response.
        """
        body, endpoint = self._request(messages, max_tokens), self._endpoint()
        retry = replace(self._retry, timeout_s=self._settings.stream_timeout_s)
        with self._observer.call("text") as call:
            stream, whole, reserved = await retry.run(
                lambda timeout_s: self._open(endpoint, body, timeout_s),
                endpoint.judge,
                call.retrying,
            )
            try:
                async with stream:
                    piece: str | None = whole.text
                    while piece is not None:
                        if piece:
                            yield TextDelta(piece)
                        piece = await self._next_piece(endpoint, stream, whole)
                reply = whole.reply()
                usage = self._usage(body, reply)
                if reply.finish_reason is not None or reply.tokens is not None:
                    _settle(reserved, usage)
            finally:
                _forfeit(reserved)
            call.replied(reply, usage)
            # A server that gives no reason but counts the tokens has reached the end as well.
            if reply.finish_reason is None and reply.tokens is None:
                raise ModelUnavailable("The model's reply broke off before its end.")
            yield self._completion(reply, usage)

    def _shape(self, schema: type[T]) -> JsonSchema[T]:
        # Making a schema costs more than the rest of a call; agents have a handful of them.
        shape = self._shapes.get(schema)
        if shape is None:
            shape = self._shapes[schema] = JsonSchema.of(schema)
        return cast("JsonSchema[T]", shape)

    async def _complete(
        self, endpoint: Endpoint, body: dict[str, Any], call: ObservedCall
    ) -> tuple[Reply, Usage]:
        reply, usage = await self._retry.run(
            lambda timeout_s: self._attempt(endpoint, body, timeout_s),
            endpoint.judge,
            call.retrying,
        )
        call.replied(reply, usage)
        return reply, usage

    async def _attempt(
        self, endpoint: Endpoint, body: dict[str, Any], timeout_s: float
    ) -> tuple[Reply, Usage]:
        reserved, limited = await self._reserve(body)
        try:
            reply = await endpoint.complete(limited, timeout_s)
            usage = self._usage(body, reply)
            _settle(reserved, usage)
        except Exception as error:
            _give_back_if_turned_away(reserved, endpoint, error)
            raise
        finally:
            _forfeit(reserved)
        return reply, usage

    async def _reserve(self, body: dict[str, Any]) -> tuple[Reservation | None, dict[str, Any]]:
        """Tokens for one attempt, and the request with its reply bounded by them."""
        budget = current_budget()
        if budget is None:
            return None, body
        name = self._limit_name
        reserved = await budget.reserve(prompt_bound(body), body.get(name))
        return reserved, {**body, name: reserved.reply_tokens}

    async def _structured(
        self,
        messages: Sequence[Message],
        shape: JsonSchema[T],
        max_tokens: int | None,
        *,
        repaired: bool,
    ) -> Structured[T] | _Unusable:
        body, endpoint = self._request(messages, max_tokens), self._endpoint()
        body["response_format"] = shape.response_format
        with self._observer.call("json") as call:
            reply, usage = await self._complete(endpoint, body, call)
            self._raise_if_declined(reply, usage)
            problem = "the reply was cut off by the token limit; be brief"
            if reply.finish_reason != "length":
                try:
                    return Structured(shape.read(reply.text), usage, repaired)
                except UnusableReply as error:
                    problem = str(error)
            call.unusable()
            return _Unusable(reply.text, problem, usage)

    async def _open(
        self, endpoint: Endpoint, body: dict[str, Any], timeout_s: float
    ) -> tuple[ReplyStream, ReplyBuilder, Reservation | None]:
        """Open a stream and read up to its first text, so that all before it can be retried."""
        reserved, limited = await self._reserve(body)
        stream = None
        try:
            stream = await endpoint.stream(limited, timeout_s, self._settings.stream_idle_timeout_s)
            whole = ReplyBuilder(self._settings.max_reply_chars)
            while not whole.text and (chunks := await stream.next()) is not None:
                whole.add_all(chunks)
            if whole.is_blank:
                raise ForeignReply("a stream without a chunk")
        except BaseException as error:
            if stream is None:
                _give_back_if_turned_away(reserved, endpoint, error)
            _forfeit(reserved)
            if stream is not None:
                await stream.close()
            raise
        return stream, whole, reserved

    async def _next_piece(
        self, endpoint: Endpoint, stream: ReplyStream, whole: ReplyBuilder
    ) -> str | None:
        try:
            chunks = await stream.next()
            return None if chunks is None else whole.add_all(chunks)
        except Exception as error:
            verdict = endpoint.judge(error)
            if verdict is None:
                raise
        raise final_error(verdict)  # not chained, like in RetryPolicy.run

    def _request(self, messages: Sequence[Message], max_tokens: int | None) -> dict[str, Any]:
        if not messages:
            raise InvalidArgument.field("messages", "must hold at least one message")
        size, limit = (
            sum(len(message.text) for message in messages),
            self._settings.max_prompt_chars,
        )
        if size > limit:
            raise InvalidArgument.field(
                "messages",
                f"{size} characters are more than the {limit} that one model call may have "
                "(BOS_MODEL_MAX_PROMPT_CHARS); shorten the input",
            )
        body: dict[str, Any] = {
            "model": self.config.model,
            "messages": [{"role": each.role, "content": each.text} for each in messages],
        }
        if self.config.temperature is not None:
            body["temperature"] = self.config.temperature
        if max_tokens is not None:
            body[self._limit_name] = max_tokens
        return body

    @property
    def _limit_name(self) -> str:
        # OpenAI's newer models know only the long name, other servers often only the short one.
        compatible = self.config.provider not in ("openai", "azure")
        return "max_tokens" if compatible else "max_completion_tokens"

    def _usage(self, body: dict[str, Any], reply: Reply) -> Usage:
        tokens = reply.tokens
        if tokens is None:
            # Some servers count nothing. An estimate serves budgets better than zero.
            sent = sum(len(message["content"]) for message in body["messages"])
            tokens = TokenCount(sent // _CHARS_PER_TOKEN, len(reply.text) // _CHARS_PER_TOKEN)
        # A deployment of Azure may have any name; what it serves is in its replies.
        price = self._prices.find(self.config.model, reply.model)
        return Usage(
            model=self.config.model,
            input_tokens=tokens.input_tokens,
            output_tokens=tokens.output_tokens,
            calls=1,
            cached_tokens=tokens.cached_tokens,
            cost=None
            if price is None
            else price.of(tokens.input_tokens, tokens.output_tokens, tokens.cached_tokens),
        )

    def _completion(self, reply: Reply, usage: Usage) -> Completion:
        self._raise_if_declined(reply, usage)
        if not reply.text.strip():
            raise ModelOutputInvalid(
                "The model's reply was empty.",
                usage=usage,
                metadata={"model": self.config.model},
            )
        return Completion(reply.text, usage, truncated=reply.finish_reason == "length")

    def _raise_if_declined(self, reply: Reply, usage: Usage) -> None:
        if reply.refusal:
            # The one text of a model that an error repeats: it is written for the person who asked.
            refusal = " ".join(reply.refusal.split())[:_MAX_REFUSAL_CHARS]
            raise ModelRefused(f"The model declined: {refusal}", usage=usage)
        if reply.finish_reason == "content_filter":
            raise ModelRefused("A content filter withheld the model's reply.", usage=usage)


def _settle(reserved: Reservation | None, usage: Usage) -> None:
    if reserved is not None:
        reserved.settle(usage.input_tokens + usage.output_tokens)


def _forfeit(reserved: Reservation | None) -> None:
    if reserved is not None:
        reserved.forfeit()


def _give_back_if_turned_away(
    reserved: Reservation | None, endpoint: Endpoint, error: BaseException
) -> None:
    """Calls that no model has worked on are not billed."""
    verdict = endpoint.judge(error) if isinstance(error, Exception) else None
    if reserved is not None and verdict is not None and verdict.turned_away:
        reserved.settle(0)


def _repair(unusable: _Unusable, name: str) -> list[Message]:
    shown = unusable.reply[:_MAX_SHOWN_REPLY_CHARS]
    complaint = user(
        f"Your reply is not a valid {name}:\n{unusable.problem}\n"
        "Reply again with the complete, corrected JSON object and nothing else."
    )
    # Endpoints refuse a message without content, so an empty reply is not shown.
    return [assistant(shown), complaint] if shown.strip() else [complaint]
