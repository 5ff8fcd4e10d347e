"""Requests of OpenAI's API: what is understood, what is ignored, what is refused."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from bos_errors import InvalidArgument, NotFound, ResourceExhausted
from bos_protocols.openai.messages import Talk, talk_of

MAX_BODY_BYTES = 2 * 1024 * 1024
MODEL = "bos"
_AGENT_PREFIX = "bos/"
_NOT_OFFERED = "Bos does not offer this; leave it out"


class _Asked(BaseModel):
    """What both kinds of requests have."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str = Field(default=MODEL, max_length=128)
    stream: bool | None = None
    metadata: dict[str, str] | None = Field(default=None, max_length=16)
    store: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    top_logprobs: int | None = None

    @property
    def prefer_agents(self) -> list[str]:
        """Agents that the model's name prefers.

        Raises:
            NotFound: there is no such model.
        """
        return agents_of(self.model)

    def check(self) -> None:
        """Refuse what would change the meaning of the answer.

        Raises:
            InvalidArgument: names the field.
        """
        self.prefer_agents  # noqa: B018
        if self.tool_choice not in (None, "auto", "none"):
            raise InvalidArgument.field(
                "tool_choice", "tools run inside Bos, which chooses them; send auto or none"
            )
        if self.top_logprobs:
            raise InvalidArgument.field("top_logprobs", _NOT_OFFERED)


_Kind = TypeVar("_Kind", bound=_Asked)


class StreamOptions(BaseModel):
    """``stream_options`` of a chat completion."""

    include_usage: bool | None = None


class ChatRequest(_Asked):
    """``POST /v1/chat/completions``."""

    messages: list[dict[str, Any]] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    n: int | None = None
    logprobs: bool | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    audio: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    function_call: str | dict[str, Any] | None = None

    def check(self) -> None:
        """Refuse what completions of Bos do not have."""
        super().check()
        if self.n not in (None, 1):
            raise InvalidArgument.field("n", "one answer to a question; send 1 or leave it out")
        if (self.response_format or {"type": "text"}).get("type") != "text":
            raise InvalidArgument.field("response_format", "answers are text; tables are Markdown")
        if "audio" in (self.modalities or []):
            raise InvalidArgument.field("modalities", _NOT_OFFERED)
        for name, given in {
            "logprobs": self.logprobs,
            "audio": self.audio,
            "stop": self.stop,
        }.items():
            if given:
                raise InvalidArgument.field(name, _NOT_OFFERED)
        if self.function_call not in (None, "auto", "none"):
            raise InvalidArgument.field("function_call", "tools run inside Bos, which chooses them")

    def talk(self) -> Talk:
        """The messages taken apart."""
        return talk_of(self.messages, "messages")


class _Conversation(BaseModel):
    id: str = Field(min_length=1, max_length=128)


class ResponsesRequest(_Asked):
    """``POST /v1/responses``."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = Field(default=None, max_length=128)
    conversation: str | _Conversation | None = None
    background: bool | None = None
    include: list[str] | None = None
    prompt: dict[str, Any] | None = None
    text: dict[str, Any] | None = None

    def check(self) -> None:
        """Refuse what responses of Bos do not have."""
        super().check()
        form = (self.text or {}).get("format") or {"type": "text"}
        if not isinstance(form, dict) or form.get("type") != "text":
            raise InvalidArgument.field("text.format", "answers are text; tables are Markdown")
        if self.prompt:
            raise InvalidArgument.field("prompt", _NOT_OFFERED)
        if "message.output_text.logprobs" in (self.include or []):
            raise InvalidArgument.field("include", "Bos has no logprobs; leave them out")
        if self.previous_response_id and self.conversation:
            raise InvalidArgument.field(
                "conversation", "a previous response has its own; send one of the two"
            )

    @property
    def conversation_id(self) -> str:
        """The conversation that is named; empty for none."""
        named = self.conversation
        return named.id if isinstance(named, _Conversation) else named or ""

    def talk(self) -> Talk:
        """The input taken apart."""
        items = self.input
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        return talk_of(items, "input", self.instructions or "")


def agents_of(model: str) -> list[str]:
    """Agents that the name of a model prefers.

    Raises:
        NotFound: there is no such model.
    """
    if model == MODEL:
        return []
    agent = model.removeprefix(_AGENT_PREFIX)
    if not agent or agent == model:
        raise NotFound(
            f"There is no model {model[:100]!r}; use {MODEL!r}, or one that /v1/models lists.",
            reason="MODEL_NOT_FOUND",
        )
    return [agent]


async def parsed(kind: type[_Kind], request: Request) -> _Kind:
    """The body of a request, checked.

    Raises:
        InvalidArgument: it is not understood, or asks for what Bos does not offer.
        ResourceExhausted: it is too long.
        NotFound: there is no such model.
    """
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise ResourceExhausted(
                f"The request has more than {MAX_BODY_BYTES} bytes; leave out older messages.",
                reason="REQUEST_TOO_LARGE",
            )
    try:
        asked = kind.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(at) for at in first["loc"]) or "body"
        raise InvalidArgument.field(field, first["msg"]) from None
    asked.check()
    return asked
