"""The model of one agent: text, structured output, streams."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel

from bos_errors import BosError, ConfigurationError
from bos_llm.agent_config import current_model_choice
from bos_llm.calling import count_tokens
from bos_llm.endpoints.profiles import current_key_profile
from bos_llm.endpoints.request import Request
from bos_llm.errors import BudgetExhausted, ModelOutputInvalid, ModelRefused, ModelUnavailable
from bos_llm.messages import assistant, user
from bos_llm.replies.repairing import repair
from bos_llm.replies.schema import JsonSchema, UnusableReply
from bos_llm.replies.thinking import without_thinking
from bos_llm.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from bos_llm.agent_config import AgentModelConfig
    from bos_llm.calling import Caller
    from bos_llm.endpoints.observe import Observer
    from bos_llm.messages import Message
    from bos_llm.prices import PriceTable
    from bos_llm.replies.wire import Reply, TokenCount
    from bos_llm.settings import ModelSettings

T = TypeVar("T", bound=BaseModel)

_MAX_REFUSAL_CHARS = 300
_REPAIR_TEMPERATURE = 0.4


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
class ModelCalls:
    """Calls of one agent to one model."""

    config: AgentModelConfig
    caller: Caller
    observer: Observer


@dataclass(frozen=True, slots=True)
class _Unusable:
    """A reply that is not the JSON asked for."""

    reply: str
    problem: str
    usage: Usage
    truncated: bool


class Model:
    """The model of one agent. Get it from ``Models.for_agent``; safe to share.

    All calls keep to the deadline of the server call in progress and raise:

    * ``ModelNotConfigured``: no key or model is set, or the endpoint refuses them;
    * ``ConfigurationError``: there is no key profile of the name that the task asks for, or it
      chose one model more than a process calls;
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
        settings: ModelSettings,
        *,
        prices: PriceTable,
        calls_of: Callable[[str], ModelCalls],
    ) -> None:
        self.agent = agent
        self._settings = settings
        self._prices = prices
        self._calls_of = calls_of
        self._shapes: dict[type[BaseModel], JsonSchema[Any]] = {}

    @property
    def config(self) -> AgentModelConfig:
        """The model that a call of the current task goes to: its question may have chosen one."""
        return self._calls.config

    @property
    def _calls(self) -> ModelCalls:
        return self._calls_of(current_model_choice())

    @property
    def _caller(self) -> Caller:
        return self._calls.caller

    @property
    def _observer(self) -> Observer:
        return self._calls.observer

    @property
    def configured(self) -> bool:
        """Whether everything is set that a call of the current task needs."""
        config = replace(self.config, keys=current_key_profile() or self.config.keys)
        try:
            return not self._settings.missing(self.agent, config)
        except ConfigurationError:
            return True  # the call itself says what is wrong with the profile

    @property
    def reasons(self) -> bool:
        """Whether the model thinks before it replies, which takes time and tokens."""
        return self._caller.thinks

    async def text(
        self, messages: Sequence[Message], *, max_tokens: int | None = None
    ) -> Completion:
        """A reply in text."""
        request = Request(messages, max_tokens=max_tokens)
        with self._observer.call("text") as call:
            reply, tokens = await self._caller.whole(request, call)
            usage = self._usage(reply, tokens)
            call.replied(request, reply, usage)
            return self._completion(replace(reply, text=without_thinking(reply.text)), usage)

    @property
    def tier(self) -> Literal["standard", "small"]:
        """Strength of the model: ``small`` gets simpler calls, one thing at a time."""
        return self.config.tier

    async def structured(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        max_tokens: int | None = None,
        form_in: Literal["system", "last"] = "system",
        patient: bool = True,
    ) -> Structured[T]:
        """A reply as a value of ``schema``, a pydantic model.

        A reply that is not such a value is shown to the model once, with what is wrong with it.

        Args:
            messages: The conversation; the first one holds the instructions.
            schema: What the reply must be.
            max_tokens: Longest reply; None: as the settings say.
            form_in: Where the form of the reply is written down for models that need it in words:
                at the end of the first message, or of the last one if the ones before it are
                shared with other calls and should stay the same for prompt caches.
            patient: False for a call that is not worth a second attempt at an endpoint in trouble.
        """
        shape = self._shape(schema)
        request = Request(messages, shape, form_in, max_tokens, patient=patient)
        first = await self._structured(request, repaired=False)
        if isinstance(first, Structured):
            return first
        shown, complaint = repair(first.reply, first.problem, shape, truncated=first.truncated)
        # Endpoints refuse a message without content, so an empty reply is not shown.
        said = [assistant(shown)] if shown.strip() else []
        again = replace(request, messages=[*messages, *said, user(complaint)], form_in="system")
        if first.truncated:
            # A model that ran in circles does so again where nothing is left to chance.
            again = replace(again, temperature=_REPAIR_TEMPERATURE)
        try:
            second = await self._structured(again, repaired=True)
        except BosError as error:
            if isinstance(error, BudgetExhausted | ModelRefused | ModelOutputInvalid):
                error.usage = first.usage + (error.usage or Usage())
            raise
        usage = first.usage + second.usage
        if isinstance(second, Structured):
            return Structured(second.value, usage, repaired=True)
        raise ModelOutputInvalid(
            f"The reply of the model {self.config.model} ({self.config.provider}) could not be "
            "used, and asking once more did not help.",
            usage=usage,
            metadata={"schema": shape.name, "model": self.config.model},
        )

    async def stream(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, patient: bool = True
    ) -> AsyncGenerator[TextDelta | Completion, None]:
        """The pieces of a reply as they arrive, then the whole as a :class:`Completion`.

        Failures before the first piece are retried; a later one ends the stream with
        ``ModelUnavailable``. Close the generator (``contextlib.aclosing``) when leaving early:
        that ends the HTTP response. ``patient`` as for :meth:`structured`.
        """
        request = Request(messages, max_tokens=max_tokens, streamed=True, patient=patient)
        with self._observer.call("text") as call:
            opened = await self._caller.stream(request, call)
            try:
                async with opened.stream:
                    piece: str | None = opened.shown.feed(opened.whole.text)
                    while piece is not None:
                        if piece:
                            yield TextDelta(piece)
                        piece = await opened.next_piece()
                    if rest := opened.shown.end():
                        yield TextDelta(rest)
                reply = opened.whole.reply()
                tokens = count_tokens(opened.body, reply)
                usage = self._usage(reply, tokens)
                if reply.finish_reason is not None or reply.tokens is not None:
                    opened.settle(tokens)
            finally:
                opened.forfeit()
            call.replied(request, reply, usage)
            # A server that gives no reason but counts the tokens has reached the end as well.
            if reply.finish_reason is None and reply.tokens is None:
                raise ModelUnavailable("The model's reply broke off before its end.")
            yield self._completion(replace(reply, text=without_thinking(reply.text)), usage)

    def _shape(self, schema: type[T]) -> JsonSchema[T]:
        # Making a schema costs more than the rest of a call; agents have a handful of them.
        shape = self._shapes.get(schema)
        if shape is None:
            shape = self._shapes[schema] = JsonSchema.of(schema)
        return cast("JsonSchema[T]", shape)

    async def _structured(self, request: Request, *, repaired: bool) -> Structured[Any] | _Unusable:
        shape = request.shape
        assert shape is not None
        with self._observer.call("json") as call:
            reply, tokens = await self._caller.whole(request, call)
            usage = self._usage(reply, tokens)
            call.replied(request, reply, usage)
            self._raise_if_declined(reply, usage)
            try:
                return Structured(shape.read_reply(reply), usage, repaired)
            except UnusableReply as error:
                call.unusable()
                cut_off = reply.finish_reason == "length"
                return _Unusable(reply.text, str(error), usage, cut_off)

    def _usage(self, reply: Reply, tokens: TokenCount) -> Usage:
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
            thought = reply.finish_reason == "length" and self.reasons
            why = (
                " before it had thought to the end; set BOS_MODEL_REASONING_EFFORT lower or "
                "BOS_MODEL_REASONING_TOKENS higher"
            )
            raise ModelOutputInvalid(
                f"The reply of the model {self.config.model} ({self.config.provider}) was empty"
                f"{why if thought else ''}.",
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
