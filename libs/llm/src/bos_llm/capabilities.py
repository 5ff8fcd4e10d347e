"""What an endpoint turned out to take, learnt from what it refuses, by endpoint and model.

A request that is refused because of one parameter is changed in that one thing and sent again at
once; later calls start from there. What was learnt lives as long as the process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from bos_llm.providers import Capabilities, StructuredMode
    from bos_llm.refusals import Refusal

Parameter = Literal[
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "stream_options",
    "reasoning_effort",
]
"""Parameters of a request that an endpoint may refuse and Bos can do without or say otherwise."""

SETTINGS: Final[dict[str, str]] = {
    "temperature": "BOS_MODEL_TEMPERATURE=none",
    "max_tokens": "BOS_MODEL_MAX_REPLY_TOKENS to a smaller number",
    "max_completion_tokens": "BOS_MODEL_MAX_REPLY_TOKENS to a smaller number",
    "response_format": "BOS_MODEL_STRUCTURED=prompt",
    "stream_options": "BOS_MODEL_PROVIDER to the provider's name",
    "reasoning_effort": "BOS_MODEL_REASONING_EFFORT=none, or leave it unset",
    "model": "BOS_MODEL (or <AGENT>_MODEL) to a model that it serves",
}
"""What to set when an endpoint refuses a parameter for good."""

# Names under which endpoints complain about a parameter, the most telling first.
_NAMES: Final[tuple[tuple[str, Parameter], ...]] = (
    ("response_format", "response_format"),
    ("json_schema", "response_format"),
    ("json_object", "response_format"),
    ("structured output", "response_format"),
    ("max_completion_tokens", "max_completion_tokens"),
    ("max_tokens", "max_tokens"),
    ("temperature", "temperature"),
    ("stream_options", "stream_options"),
    ("reasoning_effort", "reasoning_effort"),
    ("reasoning.effort", "reasoning_effort"),
    ("strict", "response_format"),
)
_TOO_LARGE = re.compile(r"too large|at most|less than|exceed|maximum|out of range|<=")
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|not permitted|forbidden|unknown|unrecogni|instead"
)
_OFFERS_OBJECT = re.compile(r"json_object|json mode|does not support .{0,20}json_schema")
_NUMBER = re.compile(r"\d[\d,_]{2,8}")
_WINDOW = re.compile(r"(?:context|window|sequence)[^.\d]{0,40}?(\d[\d,_]{2,8})")
_MIN_LIMIT = 256


def named_parameter(refusal: Refusal, sent: Collection[str]) -> Parameter | None:
    """The parameter that a refusal is about, of those that were ``sent``; None if it is another.

    The field that endpoints have for it counts more than their words.
    """
    for text in (refusal.param, refusal.words):
        found = [
            (text.find(name), order, parameter)
            for order, (name, parameter) in enumerate(_NAMES)
            if name in text and parameter in sent
        ]
        if found:
            return min(found)[2]
    return None


@dataclass(frozen=True, slots=True)
class Lesson:
    """One thing learnt, for logs and ``bos doctor``."""

    parameter: str
    text: str


class Ladder:
    """What one model at one endpoint takes, as far as is known. Shared by concurrent calls.

    Args:
        start: What its provider's row says.
        structured: How replies as JSON are asked for, if settings say so; None leaves it open.
    """

    def __init__(self, start: Capabilities, structured: StructuredMode | None = None) -> None:
        self.now = start if structured is None else replace(start, structured=structured)
        self.window: int | None = None
        """Tokens of prompt and reply together, if the endpoint said so."""
        self.lessons: list[Lesson] = []

    def learn(
        self, used: Capabilities, refusal: Refusal, sent: Collection[str], limit: int
    ) -> bool:
        """Take in why a request was refused; whether sending it again, changed, is worth it.

        Args:
            used: What the request was made for.
            refusal: What the endpoint said.
            sent: Names of the parameters that were sent.
            limit: The bound of the reply that was sent; 0 for none.
        """
        parameter = named_parameter(refusal, sent)
        if parameter is None:
            return self._learn_window(refusal, limit)
        before = self.now
        if before != used:
            return True  # another call has learnt something in the meantime
        if parameter in ("max_tokens", "max_completion_tokens"):
            return self._learn_limit(parameter, refusal, limit)
        if parameter == "response_format":
            return self._learn_structured(refusal)
        if parameter == "temperature":
            self.now = replace(before, temperature=False, temperature_refused=True)
        elif parameter == "stream_options":
            self.now = replace(before, stream_usage=False)
        else:
            self.now = replace(before, reasoning_effort=False)
        return self._changed(before, parameter, f"does not take {parameter}")

    def _learn_structured(self, refusal: Refusal) -> bool:
        before = self.now
        if before.structured == "prompt":
            return False
        next_mode: StructuredMode = "prompt"
        if before.structured == "json_schema" and _OFFERS_OBJECT.search(refusal.words):
            next_mode = "json_object"
        self.now = replace(before, structured=next_mode)
        said = {"prompt": "in words alone", "json_object": "as any JSON object"}[next_mode]
        text = f"does not take response_format {before.structured}; JSON is asked for {said}"
        return self._changed(before, "response_format", text)

    def _learn_limit(self, parameter: Parameter, refusal: Refusal, limit: int) -> bool:
        before = self.now
        if self._learn_window(refusal, limit):
            return True
        if _TOO_LARGE.search(refusal.words) and not _NOT_TAKEN.search(refusal.words):
            cap = max((n for n in _numbers(refusal.words) if n < limit), default=limit // 2)
            if cap < _MIN_LIMIT:
                return False
            self.now = replace(before, limit_cap=cap)
            return self._changed(before, parameter, f"gives replies of at most {cap} tokens")
        if parameter == "max_tokens":
            self.now = replace(before, limit="max_completion_tokens")
        elif before.limit_cap != 0:
            # The other name may have been refused before; then none is sent at all.
            tried = any(lesson.parameter == "max_tokens" for lesson in self.lessons)
            self.now = replace(before, limit="none" if tried else "max_tokens")
        return self._changed(before, parameter, f"does not take {parameter}")

    def _learn_window(self, refusal: Refusal, limit: int) -> bool:
        """The window is too small for prompt and reply together, so the reply must be shorter."""
        if not limit or not refusal.too_long:
            return False
        found = _WINDOW.search(refusal.words)
        window = _number(found[1]) if found else 0
        if window < _MIN_LIMIT or (self.window is not None and self.window <= window):
            return False
        self.window = window
        self._note("max_tokens", f"has a window of {window} tokens")
        return True

    def _changed(self, before: Capabilities, parameter: str, text: str) -> bool:
        if self.now == before:
            return False
        self._note(parameter, text)
        return True

    def _note(self, parameter: str, text: str) -> None:
        self.lessons.append(Lesson(parameter, text))


def _numbers(words: str) -> list[int]:
    return [number for found in _NUMBER.findall(words) if (number := _number(found)) >= _MIN_LIMIT]


def _number(text: str) -> int:
    digits = re.sub(r"\D", "", text)
    return int(digits) if digits else 0
