"""Failures as servers tell them: by status, by an object with status 200, by emptiness."""

from typing import Any

from canned_replies import (
    GOOD,
    USAGE,
    CannedReply,
    Expected,
    Failure,
    completion,
)

_ATTEMPTS = 2
"""How often what may pass is tried."""


def _reports(
    name: str,
    body: Any,
    status: int | None,
    failure: Failure,
    max_requests: int = _ATTEMPTS,
) -> CannedReply:
    """An error in a reply whose HTTP status says success."""
    return CannedReply(
        name,
        Expected(failure=failure, reported=status),
        body=body,
        max_requests=max_requests,
    )


def _foreign(name: str, body: Any) -> CannedReply:
    return CannedReply(name, Expected(failure="foreign"), body=body, max_requests=_ATTEMPTS)


def _says_nothing(name: str, body: Any) -> CannedReply:
    return CannedReply(name, Expected(failure="output"), body=body, max_requests=2)


def _broken(message: str, **error: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "error", "message": {"content": message}, **error}
    return {"id": "x", "model": "m", "choices": [choice], "usage": USAGE}


CASES = (
    _reports(
        "200 with an error, as from OpenRouter",
        {
            "error": {
                "message": "Provider returned error",
                "code": 429,
                "metadata": {"provider_name": "X"},
            }
        },
        429,
        "rate_limited",
    ),
    _says_nothing("no choices, as from Gemini", {"id": "x", "choices": [], "usage": USAGE}),
    _reports(
        "generation ended by an error, as from OpenRouter",
        _broken('{"tab', error={"code": 502, "message": "x"}),
        502,
        "unavailable",
    ),
    CannedReply(
        "400 failed to write JSON, as from Groq",
        Expected(failure="output"),
        status=400,
        body={
            "error": {
                "message": "Failed to generate JSON. Please adjust your prompt.",
                "type": "invalid_request_error",
                "code": "json_validate_failed",
                "failed_generation": "{",
            }
        },
        max_requests=2,
    ),
    # Our own.
    _reports("200 with an error as a text", {"error": "upstream failed"}, None, "unavailable"),
    _reports(
        "200 with an error in a list, as from Gemini",
        [{"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}],
        503,
        "unavailable",
    ),
    _reports(
        "200 with a named error, as from Anthropic",
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
        529,
        "unavailable",
    ),
    _reports(
        "200 with an error as the object, as from older vLLM",
        {"object": "error", "message": "x", "type": "NotFoundError", "code": 404},
        404,
        "unknown_model",
        1,
    ),
    _reports("ended by an error without a message", _broken(GOOD), None, "unavailable"),
    _reports(
        "200 with an invalid status",
        {"error": {"code": 10**400, "type": {"a": 1}, "message": None}},
        None,
        "unavailable",
    ),
    _says_nothing("choice without a message", {"choices": [{"finish_reason": "stop"}]}),
    _says_nothing("message null", {"choices": [{"message": None, "finish_reason": "stop"}]}),
    _foreign("choices a text", {"choices": "none"}),
    _foreign("choices absent", {"message": {"role": "assistant", "content": GOOD}, "done": True}),
    _foreign("JSON null", None),
    CannedReply(
        "refusal",
        Expected(failure="refused"),
        body=completion({"content": None, "refusal": "I cannot do that."}),
    ),
    CannedReply(
        "filtered, as Gemini says it",
        Expected(failure="refused"),
        body=completion({"content": None}, "SAFETY"),
    ),
)
