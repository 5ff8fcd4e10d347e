"""Capabilities of endpoints, learnt from what they refuse, by endpoint and model.

A request that is refused because of one parameter is changed in that one thing and sent again at
once; later calls start from there. What was learnt lives as long as the process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Collection

    from bos_llm.endpoints.error_reply import Refusal
    from bos_llm.endpoints.providers import Capabilities, LimitName, StructuredMode

Parameter = Literal[
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "stream_options",
    "reasoning_effort",
]
"""Parameters of a request that an endpoint may refuse and Bos can do without or say otherwise."""

SETTINGS: Final[dict[Parameter, str]] = {
    "temperature": "set BOS_MODEL_TEMPERATURE=none",
    "max_tokens": "set BOS_MODEL_MAX_REPLY_TOKENS to a smaller number",
    "max_completion_tokens": "set BOS_MODEL_MAX_REPLY_TOKENS to a smaller number",
    "response_format": "set BOS_MODEL_STRUCTURED=prompt",
    "stream_options": "set BOS_MODEL_PROVIDER to the provider's name",
    "reasoning_effort": "set BOS_MODEL_REASONING_EFFORT to a value that the model knows",
}
"""What to do when an endpoint refuses a parameter for good."""

# Names under which endpoints complain about a parameter, the most specific first.
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
)
_WHOLE_BODY = frozenset(("body", "request", "json", "none", "null"))
_TOO_LARGE = re.compile(r"too large|at most|less than|exceed|maximum|range|between|<=")
# What is wrong is this request's schema or number, not that such a thing is sent.
_THIS_ONE = re.compile(r"invalid schema|schema .{0,40}(invalid|not valid)")
_ECHO = re.compile(r"['\"]?input['\"]?\s*:")
_NOT_TAKEN = re.compile(
    r"unsupported|not supported|not permitted|forbidden|unknown|unrecogni|instead"
)
_OFFERS_OBJECT = re.compile(r"json_object|json mode|does not support .{0,20}json_schema")
_NUMBER = re.compile(r"\d[\d,_]{2,8}")
_WINDOW = re.compile(r"(?:context|window|sequence)[^.\d]{0,40}?(\d[\d,_]{2,8})")
_PROMPT = re.compile(
    r"(\d[\d,_]*) (?:input tokens|in the messages|in the input|of (?:text )?input|prompt tokens)"
)
_MIN_LIMIT = 256
_WINDOW_MARGIN = 32


def named_parameter(refusal: Refusal, sent: Collection[str]) -> Parameter | None:
    """The parameter that a refusal is about, of those that were ``sent``; None if it is another.

    The field that endpoints have for it decides if it is filled in. Else their words do, without
    what they echo of the request.
    """
    text = refusal.param
    if not text or text in _WHOLE_BODY:
        text = _ECHO.split(refusal.words, maxsplit=1)[0]
    found = [
        (text.find(name), order, parameter)
        for order, (name, parameter) in enumerate(_NAMES)
        if name in text and parameter in sent
    ]
    return min(found)[2] if found else None


@dataclass(frozen=True, slots=True)
class Lesson:
    """One thing learnt, for logs and ``bos doctor``."""

    parameter: str
    text: str


class Ladder:
    """Known capabilities of one model at one endpoint. Shared by concurrent calls.

    Args:
        start: What its provider's row says.
        structured: How replies as JSON are asked for, if settings say so; None leaves it open.
    """

    def __init__(self, start: Capabilities, structured: StructuredMode | None = None) -> None:
        self.now = start if structured is None else replace(start, structured=structured)
        self.lessons: list[Lesson] = []

    def learn(
        self, used: Capabilities, refusal: Refusal, sent: Collection[str], limit: int
    ) -> Capabilities | None:
        """Take in why a request was refused.

        What is wrong with this request alone is not kept for others.

        Args:
            used: What the request was made for.
            refusal: What the endpoint said.
            sent: Names of the parameters that were sent.
            limit: The bound of the reply that was sent; 0 for none.

        Returns:
            What to send it again for; None if that would end the same way.
        """
        if refusal.filtered or refusal.unknown_model:
            return None
        if refusal.too_long and _WINDOW.search(refusal.words):
            return self._in_the_window(used, refusal, limit)
        parameter = named_parameter(refusal, sent)
        if parameter is None:
            return None
        if parameter in ("max_tokens", "max_completion_tokens"):
            return self._with_other_limit(used, parameter, refusal, limit)
        if parameter == "response_format":
            return self._with_other_form(used, refusal)
        if parameter == "temperature":
            changed = replace(used, temperature=False, temperature_refused=True)
            if _TOO_LARGE.search(refusal.words) and not _NOT_TAKEN.search(refusal.words):
                return changed if changed != used else None
        elif parameter == "stream_options":
            changed = replace(used, stream_usage=False)
        else:
            changed = replace(used, reasoning_effort=False)
        return self._keep(used, changed, parameter, f"does not take {parameter}")

    def unlearn(self, before: Capabilities, known: int) -> None:
        """Forget what one attempt learnt: it was refused all the same, so that was not the reason.

        Args:
            before: What was known when it began.
            known: How many lessons there were.
        """
        self.now = before
        del self.lessons[known:]

    def _with_other_form(self, used: Capabilities, refusal: Refusal) -> Capabilities | None:
        if used.structured == "prompt":
            return None
        mode: StructuredMode = "prompt"
        if used.structured == "json_schema" and _OFFERS_OBJECT.search(refusal.words):
            mode = "json_object"
        changed = replace(used, structured=mode)
        if _THIS_ONE.search(refusal.words):
            return changed
        said = {"prompt": "in words alone", "json_object": "as any JSON object"}[mode]
        text = f"does not take response_format {used.structured}; JSON is asked for {said}"
        return self._keep(used, changed, "response_format", text)

    def _with_other_limit(
        self, used: Capabilities, parameter: Parameter, refusal: Refusal, limit: int
    ) -> Capabilities | None:
        if _TOO_LARGE.search(refusal.words) and not _NOT_TAKEN.search(refusal.words):
            cap = max((n for n in _numbers(refusal.words) if n < limit), default=limit // 2)
            if cap < _MIN_LIMIT:
                return None
            text = f"gives replies of at most {cap} tokens"
            return self._keep(used, replace(used, limit_cap=cap), parameter, text)
        tried = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
        refused = {each.parameter for each in self.lessons if "does not take" in each.text}
        other: LimitName = "none" if tried[parameter] in refused else tried[parameter]  # type: ignore[assignment]
        return self._keep(used, replace(used, limit=other), parameter, f"does not take {parameter}")

    def _in_the_window(
        self, used: Capabilities, refusal: Refusal, limit: int
    ) -> Capabilities | None:
        """Prompt and reply together are more than the window: the reply has to be shorter."""
        found = _WINDOW.search(refusal.words)
        window = _number(found[1]) if found else 0
        if not limit or window < _MIN_LIMIT:
            return None
        sent = _PROMPT.search(refusal.words)
        prompt = _number(sent[1]) if sent else 0
        if not prompt and used.window == window:
            return None  # tried already, as far as it is known how long the reply may be
        room = window - prompt - _WINDOW_MARGIN if prompt else limit // 2
        if room < _MIN_LIMIT or room >= limit:
            return None
        if used.window != window:
            kept = replace(used, window=window)
            self._keep(used, kept, "max_tokens", f"has a window of {window} tokens")
            used = kept
        # How long this prompt is, is this request's own affair.
        return replace(used, limit_cap=min(room, used.limit_cap or room))

    def _keep(
        self, used: Capabilities, changed: Capabilities, parameter: str, text: str
    ) -> Capabilities | None:
        if changed == used:
            return None
        if self.now == used:
            self.now = changed
            self.lessons.append(Lesson(parameter, text))
            return changed
        # Another call has learnt something in the meantime; this one goes on from there.
        return self.now


def _numbers(words: str) -> list[int]:
    return [number for found in _NUMBER.findall(words) if (number := _number(found)) >= _MIN_LIMIT]


def _number(text: str) -> int:
    digits = re.sub(r"\D", "", text)
    return int(digits) if digits else 0
