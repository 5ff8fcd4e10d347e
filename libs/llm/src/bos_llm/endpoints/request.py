"""The body of a chat completions request, made for what the endpoint is known to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from bos_errors import InvalidArgument
from bos_llm.endpoints.providers import provider_row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_llm.agent_config import AgentModelConfig
    from bos_llm.endpoints.providers import Capabilities
    from bos_llm.messages import Message
    from bos_llm.replies.schema import JsonSchema
    from bos_llm.settings import ModelSettings

FormPlace = Literal["system", "last"]
NO_THINKING: Final = "none"
_CHARS_PER_TOKEN: Final = 3
"""Fewer than text has, so that what is left of a window is not overestimated."""
_WINDOW_MARGIN: Final = 64
_MIN_REPLY_TOKENS: Final = 256
_LIMITS: Final = frozenset(("max_tokens", "max_completion_tokens"))


@dataclass(frozen=True, slots=True)
class Request:
    """A model call before it is fitted to what its endpoint takes.

    Args:
        messages: The conversation.
        shape: The JSON wanted; None for text.
        form_in: In which message the form of the JSON is written down.
        max_tokens: Longest reply; None: as settings say.
        temperature: Instead of the agent's, if it has one; None leaves that.
        streamed: Whether the reply is read as a stream.
        patient: Whether a failed attempt may be repeated.
    """

    messages: Sequence[Message]
    shape: JsonSchema[Any] | None = None
    form_in: FormPlace = "system"
    max_tokens: int | None = None
    temperature: float | None = None
    streamed: bool = False
    patient: bool = True


class RequestWriter:
    """Writes requests of one agent.

    Args:
        config: The agent's model and parameters.
        settings: Limits of all calls.
    """

    def __init__(self, config: AgentModelConfig, settings: ModelSettings) -> None:
        self._config = config
        self._settings = settings
        self._row = provider_row(config.provider)

    def check(self, messages: Sequence[Message]) -> None:
        """Refuse messages that no call may have.

        Raises:
            InvalidArgument: there are none, or they are too long together.
        """
        if not messages:
            raise InvalidArgument.field("messages", "must hold at least one message")
        size, limit = sum(len(each.text) for each in messages), self._settings.max_prompt_chars
        if size > limit:
            raise InvalidArgument.field(
                "messages",
                f"{size} characters are more than the {limit} that one model call may have "
                "(BOS_MODEL_MAX_PROMPT_CHARS); shorten the input",
            )

    def body(self, request: Request, takes: Capabilities) -> dict[str, Any]:
        """The request as an endpoint gets it that ``takes`` this."""
        config = self._config
        messages = [
            {"role": each.role, "content": _sendable(each.text)} for each in request.messages
        ]
        body: dict[str, Any] = {**config.extra_body, "model": config.model, "messages": messages}
        self._ask_for_json(request, takes, body)
        temperature = config.temperature
        if temperature is not None and request.temperature is not None:
            temperature = request.temperature
        if temperature is not None and "temperature" not in body and self._takes_temperature(takes):
            body["temperature"] = temperature
        effort = config.reasoning_effort
        if effort is not None and takes.reasoning_effort:
            body.setdefault("reasoning_effort", effort)
        if (request.streamed or self.reads_streams) and takes.stream_usage:
            body["stream_options"] = {"include_usage": True}
        if takes.limit != "none" and not _LIMITS & body.keys():
            body[takes.limit] = self._limit(request, takes, body)
        return body

    def _ask_for_json(self, request: Request, takes: Capabilities, body: dict[str, Any]) -> None:
        shape = request.shape
        if shape is None:
            return
        mode = self._settings.schema_in_prompt
        unseen = mode == "always" or (mode == "auto" and self._row.schema_in_prompt)
        # Where the endpoint does not get the schema, only the prompt can give it to the model.
        if unseen or takes.structured != "json_schema":
            place = 0 if request.form_in == "system" else -1
            message = body["messages"][place]
            body["messages"][place] = {
                **message,
                "content": f"{message['content']}\n\n{shape.form}",
            }
        if takes.structured == "json_schema":
            body["response_format"] = shape.response_format
        elif takes.structured == "json_object":
            body["response_format"] = {"type": "json_object"}

    def _takes_temperature(self, takes: Capabilities) -> bool:
        # Models that think take one only with thinking off.
        return takes.temperature or (
            takes.reasons
            and takes.reasoning_effort
            and not takes.temperature_refused
            and self._config.reasoning_effort == NO_THINKING
        )

    def _limit(self, request: Request, takes: Capabilities, body: dict[str, Any]) -> int:
        """Tokens of the reply, with what the model thinks, within what the endpoint can give."""
        limit = request.max_tokens or self._config.max_reply_tokens
        if self.thinks(takes):
            limit += self._settings.reasoning_tokens
        if takes.limit_cap is not None:
            limit = min(limit, takes.limit_cap)
        if takes.window is not None:
            chars = sum(len(message["content"]) for message in body["messages"])
            if request.shape is not None and "response_format" in body:
                chars += len(request.shape.form)
            left = takes.window - chars // _CHARS_PER_TOKEN - _WINDOW_MARGIN
            limit = min(limit, max(_MIN_REPLY_TOKENS, left))
        return limit

    def thinks(self, takes: Capabilities) -> bool:
        """Whether the model thinks before it replies."""
        must_not = takes.reasoning_effort and self._config.reasoning_effort == NO_THINKING
        return takes.reasons and not must_not

    @property
    def reads_streams(self) -> bool:
        """Whether whole replies are read as streams."""
        return self._row.stream_whole


def _sendable(text: str) -> str:
    """``text`` without halves of characters, which no request can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text
