"""An error reply of a model endpoint, taken apart. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

_TOO_LONG_CODES: Final = frozenset(
    ("context_length_exceeded", "string_above_max_length", "exceed_context_size_error")
)
_TOO_LONG_WORDS: Final = re.compile(
    r"context (length|size|window)|contextwindowexceeded|maximum context|prompt is too long"
    r"|input (is )?too long|too many (input )?tokens|reduce the length"
    r"|(prompt|input|request) .{0,40}exceeds? the (maximum|available|model)"
)
_FILTERED: Final = frozenset(("content_filter", "content_policy_violation"))
_USED_UP: Final = frozenset(("insufficient_quota", "billing_hard_limit_reached"))
_NO_MODEL_CODES: Final = frozenset(("model_not_found", "invalid_model", "model_not_available"))
_NO_MODEL_WORDS: Final = re.compile(
    r"(invalid|unknown|no such) model|not a valid model"
    r"|model.{0,80}(not found|does not exist|not exist|is not a valid)"
)
_FLAGGED: Final = re.compile(r"moderation|flagged")
_BAD_GENERATION: Final = frozenset(("json_validate_failed", "output_parse_failed"))
_LOADING: Final = re.compile(r"\bloading\b")
_MAX_WORDS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error reply, taken apart. Texts are in lower case."""

    status: int
    code: str = ""
    type: str = ""
    param: str = ""
    words: str = ""
    """The message, for recognising it only."""
    retry_after_s: float | None = None
    failed_generation: str = ""
    """What the model wrote, if the endpoint refused its own model's reply."""

    @property
    def too_long(self) -> bool:
        """Whether prompt, or prompt and reply together, are more than the model takes."""
        known = self.code in _TOO_LONG_CODES or self.type in _TOO_LONG_CODES
        return self.status == 413 or known or bool(_TOO_LONG_WORDS.search(self.words))

    @property
    def used_up(self) -> bool:
        """Whether there is no money or quota left."""
        return self.status == 402 or bool({self.code, self.type} & _USED_UP)

    @property
    def filtered(self) -> bool:
        """Whether a content filter declined the prompt."""
        known = {self.code, self.type} & _FILTERED
        return bool(known) or (self.status == 403 and bool(_FLAGGED.search(self.words)))

    @property
    def loading(self) -> bool:
        """Whether the server is still reading the model into memory."""
        return self.status == 503 and bool(_LOADING.search(self.words))

    @property
    def bad_generation(self) -> bool:
        """Whether the endpoint refuses what its own model wrote."""
        return self.code in _BAD_GENERATION

    @property
    def unknown_model(self) -> bool:
        """Whether the endpoint does not serve the model."""
        if self.status == 404 or self.code in _NO_MODEL_CODES:
            return True
        return self.status in (400, 422) and (
            self.param == "model" or bool(_NO_MODEL_WORDS.search(self.words))
        )


def read_refusal(status: int, body: object, retry_after_s: float | None = None) -> Refusal:
    """An error body of any known shape; what is not understood is left empty."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return Refusal(status, words=_text(body), retry_after_s=retry_after_s)
    error = body.get("error", body)
    if isinstance(error, str):
        return Refusal(status, words=_text(error), retry_after_s=retry_after_s)
    if not isinstance(error, dict):
        error = body
    param, words = _text(error.get("param")), _text(error.get("message"))
    detail = error.get("detail")
    if isinstance(detail, list):
        # The form of FastAPI servers: where, and what is wrong there.
        places = [each for each in detail if isinstance(each, dict)]
        param = param or " ".join(_text(each.get("loc")) for each in places)
        words = words or " ".join(f"{_text(e.get('type'))} {_text(e.get('msg'))}" for e in places)
    elif detail is not None:
        words = words or _text(detail)
    generation = error.get("failed_generation")
    return Refusal(
        status,
        code=_text(error.get("code")),
        type=_text(error.get("type")),
        param=param[:_MAX_WORDS],
        words=words[:_MAX_WORDS],
        retry_after_s=retry_after_s,
        failed_generation=generation if isinstance(generation, str) else "",
    )


def is_about_request(code: str, type: str) -> bool:
    """Whether an error without a status is one of the request, to judge by its names."""
    return bool({code, type} & (_TOO_LONG_CODES | _FILTERED | _NO_MODEL_CODES | _BAD_GENERATION))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = " ".join(str(each) for each in value[:16])
    return "" if value is None else str(value)[:_MAX_WORDS].lower()
