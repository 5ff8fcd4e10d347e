"""Grader: an OpenAI-compatible model that says whether an answer meets a criterion.

The answer goes into the prompt as untrusted data, in a fence that it cannot close. Temperature 0,
a verdict of a fixed form, one deadline for a verdict with all of its repetitions.
"""

from __future__ import annotations

import asyncio
import re
import unicodedata
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, Self

from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    OpenAIError,
)
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from bos_cli.evaluation.verdicts import Grade, Spent
from bos_errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from openai.types.chat import ChatCompletion

KEY_VARIABLE = "BOS_EVAL_GRADER_API_KEY"
_SHARED_KEY, _SHARED_URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
_NO_KEY = "none"  # the client insists on a key where a local server needs none
_MAX_ANSWER_CHARS = 60_000
_MAX_REASON_CHARS = 500
_MAX_REPLY_TOKENS = 4096  # models that think do so within it
_CHARS_PER_TOKEN = 4
_READINGS = 2
"""Replies that are read for one verdict: a second one if the first is none."""
_REFUSING_STATUS = frozenset((400, 404, 422))
_FENCED = re.compile(r"```(?:json)?\s*(\{.*\})\s*```", re.DOTALL)
_OPTIONAL: Final = ("temperature", "response_format", "max_completion_tokens")
"""What some endpoints do not take, and what a verdict can do without."""


class GraderSettings(BaseModel):
    """The model that grades, and how to reach it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, max_length=200)
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """None: the provider's own."""
    api_key: SecretStr | None = None
    timeout_s: float = Field(default=60.0, gt=0, le=600)
    """Of one verdict, with all of its repetitions."""
    max_attempts: int = Field(default=3, ge=1, le=10)
    """Of one call, if the endpoint is away or too busy."""
    price: tuple[float, float] | None = None
    """US dollars per million tokens of prompts and of replies; None: the cost is unknown."""

    @classmethod
    def of(cls, environment: Mapping[str, str], *, base_url: str | None, **options: Any) -> Self:
        """Settings of the options, with the key that belongs to the endpoint.

        A key of ``OPENAI_API_KEY`` goes to ``OPENAI_BASE_URL`` or the provider's own address,
        never to an address that is named for grading alone.

        Raises:
            InvalidArgument: a value cannot be used; names the option.
        """
        key = environment.get(KEY_VARIABLE)
        if not base_url:
            base_url = environment.get(_SHARED_URL) or None
            key = key or environment.get(_SHARED_KEY)
        if key and not (key.isascii() and key.isprintable()):
            raise InvalidArgument("The key of the grader holds characters that no key has.")
        try:
            return cls(base_url=base_url, api_key=SecretStr(key) if key else None, **options)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = {"model": "--grader-model", "base_url": "--grader-url"}.get(
                str(first["loc"][0]), "--grader-price"
            )
            raise InvalidArgument(f"{name}: {first['msg']}.") from None


class _Reply(BaseModel):
    """Form of a reply."""

    model_config = ConfigDict(strict=True)

    reason: str
    met: bool


class Grader:
    """Client of the model that grades; an async context manager, safe to share between tasks.

    Args:
        settings: The model, and how to reach it.
    """

    def __init__(self, settings: GraderSettings) -> None:
        self._settings = settings
        key = settings.api_key
        self._client = AsyncOpenAI(
            api_key=_NO_KEY if key is None else key.get_secret_value(),
            base_url=settings.base_url,
            timeout=settings.timeout_s,
            max_retries=settings.max_attempts - 1,
        )
        self._prompt = (files("bos_cli.evaluation.prompts") / "grader.md").read_text("utf-8")
        self._refused: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.close()

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._settings.model

    async def grade(self, question: str, answer: str, criterion: str) -> tuple[Grade, Spent]:
        """Whether ``answer`` meets ``criterion``, and the model calls that it took.

        A model that fails, or says something else, gives a grade that is an error.
        """
        messages = [
            {"role": "system", "content": self._prompt},
            {"role": "user", "content": _case(question, answer, criterion)},
        ]
        spent = Spent()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                for _ in range(_READINGS):
                    reply = await self._complete(messages)
                    spent += self._spent(messages, reply)
                    if (found := _read(_text(reply))) is not None:
                        return found, spent
        except TimeoutError:
            return _failed(f"no verdict within {self._settings.timeout_s:g} s"), spent
        except OpenAIError as error:
            return _failed(_explained(error)), spent
        return _failed("the grader replied with something else than a verdict"), spent

    async def _complete(self, messages: list[dict[str, str]]) -> ChatCompletion:
        """One call, repeated at once without a parameter that the endpoint refuses."""
        while True:
            body: Any = {"model": self.model, "messages": messages, **self._parameters()}
            try:
                reply: ChatCompletion = await self._client.chat.completions.create(**body)
            except APIStatusError as error:
                said = error.response.text
                refused = {each for each in _OPTIONAL if each in body and each in said}
                if error.status_code not in _REFUSING_STATUS or not refused:
                    raise
                self._refused |= refused
            else:
                return reply

    def _parameters(self) -> dict[str, Any]:
        schema = {
            "type": "object",
            "properties": {"reason": {"type": "string"}, "met": {"type": "boolean"}},
            "required": ["reason", "met"],
            "additionalProperties": False,
        }
        form = {"name": "Verdict", "strict": True, "schema": schema}
        sent: dict[str, Any] = {
            "temperature": 0,
            "response_format": {"type": "json_schema", "json_schema": form},
            "max_completion_tokens": _MAX_REPLY_TOKENS,
        }
        if "max_completion_tokens" in self._refused:
            sent["max_tokens"] = _MAX_REPLY_TOKENS
        return {name: value for name, value in sent.items() if name not in self._refused}

    def _spent(self, messages: list[dict[str, str]], reply: ChatCompletion) -> Spent:
        usage = getattr(reply, "usage", None)
        if usage is not None:
            read, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
        else:  # some servers count nothing: an estimate serves better than zero
            read = sum(len(each["content"]) for each in messages) // _CHARS_PER_TOKEN
            written = len(_text(reply)) // _CHARS_PER_TOKEN
        # US dollars per million tokens are millionths of a US dollar per token.
        prices = self._settings.price or (0, 0)
        return Spent(1, read, written, round(read * prices[0] + written * prices[1]))


def fence(text: str) -> str:
    """``text`` as untrusted data: nothing in it can pass for the end of the fence.

    Every character that reads as "<" becomes "&lt;", also a full-width one; the rest is as it was.
    """
    harmless = "".join(
        "&lt;" if "<" in unicodedata.normalize("NFKC", character) else character
        for character in text
    )
    return f"<untrusted>\n{harmless}\n</untrusted>"


def _case(question: str, answer: str, criterion: str) -> str:
    if len(answer) > _MAX_ANSWER_CHARS:
        answer = f"{answer[:_MAX_ANSWER_CHARS]}\n[cut after {_MAX_ANSWER_CHARS} characters]"
    return (
        f"### Question\n{fence(question)}\n\n### Answer\n{fence(answer)}\n\n"
        f"### Criterion\n{criterion}\n"
    )


def _text(reply: ChatCompletion) -> str:
    """Text of a reply; empty where the endpoint sent something of another shape."""
    try:
        content = reply.choices[0].message.content
    except (AttributeError, IndexError, TypeError):
        return ""
    return content if isinstance(content, str) else ""


def _read(text: str) -> Grade | None:
    """The verdict that a reply is, also in a code fence or behind thoughts; None if it is none.

    One among other words does not count: it may be quoted from the answer.
    """
    said = text.rpartition("</think>")[2].strip()
    fenced = _FENCED.fullmatch(said)
    try:
        found = _Reply.model_validate_json(fenced[1] if fenced else said)
    except ValidationError:
        return None
    return Grade(found.met, " ".join(found.reason.split())[:_MAX_REASON_CHARS])


def _failed(reason: str) -> Grade:
    return Grade(met=False, reason=reason, error=True)


def _explained(error: OpenAIError) -> str:
    """What went wrong, without what the endpoint wrote: that may quote a key."""
    if isinstance(error, APIStatusError):
        if error.status_code in (401, 403):
            return f"the grader's endpoint refused the key: set {KEY_VARIABLE}"
        return f"the grader's endpoint answered with status {error.status_code}"
    if isinstance(error, APITimeoutError):
        return "the grader's endpoint does not answer in time"
    if isinstance(error, APIConnectionError):
        return "the grader's endpoint cannot be reached: check --grader-url"
    return f"the grader's endpoint gave no reply ({type(error).__name__})"
