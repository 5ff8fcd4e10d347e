"""Failures as servers tell them: by status, by an object with status 200, by emptiness."""

from typing import Any

from canned_replies import (
    GOOD,
    NO_ERROR,
    USAGE,
    VALUE,
    CannedReply,
    Expected,
    Failure,
    completion,
)

_ATTEMPTS = 2
"""How often what may pass is tried."""
_PATIENT = 4
"""The same where the endpoint says that it will pass."""


def _error(
    name: str,
    status: int,
    failure: Failure,
    *names: str,
    max_requests: int = 1,
    headers: dict[str, str] | None = None,
    **error: Any,
) -> CannedReply:
    return CannedReply(
        name,
        Expected(failure=failure, names=names),
        status=status,
        headers=headers or {},
        body={"error": error},
        max_requests=max_requests,
    )


def _unless(name: str, parameter: str, status: int, body: Any) -> CannedReply:
    """An endpoint that does not take a parameter and is content without it."""
    return CannedReply(
        name,
        Expected(value=VALUE),
        status=status,
        body=body,
        max_requests=2,
        while_sent=parameter,
    )


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


_REJECTED = {"type": "invalid_request_error"}

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
    _says_nothing("choices null", {"id": "x", "choices": None, "usage": USAGE}),
    _reports(
        "generation ended by an error, as from OpenRouter",
        _broken('{"tab', error={"code": 502, "message": "x"}),
        502,
        "unavailable",
    ),
    _unless(
        "400 temperature, as from OpenAI's reasoning models",
        "temperature",
        400,
        {
            "error": {
                "message": "Unsupported value: 'temperature' does not support 0 with this model. "
                "Only the default (1) value is supported.",
                "param": "temperature",
                "code": "unsupported_value",
                **_REJECTED,
            }
        },
    ),
    _unless(
        "400 max_tokens, as from OpenAI's reasoning models",
        "max_tokens",
        400,
        {
            "error": {
                "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
                "Use 'max_completion_tokens' instead.",
                "param": "max_tokens",
                "code": "unsupported_parameter",
                **_REJECTED,
            }
        },
    ),
    _unless(
        "422 max_completion_tokens, as from Mistral",
        "max_completion_tokens",
        422,
        {
            "detail": [
                {
                    "type": "extra_forbidden",
                    "loc": ["body", "max_completion_tokens"],
                    "msg": "Extra inputs are not permitted",
                }
            ]
        },
    ),
    _unless(
        "400 json_schema, as from DeepSeek",
        "json_schema",
        400,
        {
            "error": {
                "message": "This response_format type is unavailable now",
                "param": None,
                "code": "invalid_request_error",
                **_REJECTED,
            }
        },
    ),
    _error(
        "400 too long, as from vLLM",
        400,
        "too_long",
        message="This model's maximum context length is 8192 tokens. However, your request has "
        "9000 input tokens.",
        type="BadRequestError",
        param="input_tokens",
        code=400,
        max_requests=2,
    ),
    _error(
        "400 too long, as from llama-server",
        400,
        "too_long",
        message="the request exceeds the available context size. try increasing it",
        type="exceed_context_size_error",
        code=400,
        n_prompt_tokens=9000,
        n_ctx=4096,
    ),
    _error(
        "400 failed to write JSON, as from Groq",
        400,
        "output",
        message="Failed to generate JSON. Please adjust your prompt.",
        code="json_validate_failed",
        failed_generation="{",
        max_requests=2,
        **_REJECTED,
    ),
    _error(
        "400 unknown model, as from LiteLLM, Mistral, OpenRouter",
        400,
        "unknown_model",
        "BOS_MODEL",
        message="Invalid model name passed in model=foo. Call `/v1/models`",
        param="model",
        code="400",
        **_REJECTED,
    ),
    _error(
        "402 out of money, as from DeepSeek and OpenRouter",
        402,
        "no_money",
        message="Insufficient Balance",
        type="unknown_error",
        code="invalid_request_error",
    ),
    _error(
        "503 loading the model, as from llama-server",
        503,
        "unavailable",
        message="Loading model",
        type="unavailable_error",
        code=503,
        max_requests=_PATIENT,
    ),
    _error(
        "529 overloaded, as from Anthropic",
        529,
        "unavailable",
        message="Overloaded",
        type="overloaded_error",
        max_requests=_ATTEMPTS,
    ),
    _unless(
        "error as a text, as from LM Studio",
        "json_schema",
        400,
        {"error": "model does not support json_schema"},
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
    _reports("200 with an error of no shape", {"error": [[1]]}, None, "unavailable"),
    _reports("ended by an error without a message", _broken(GOOD), None, "unavailable"),
    _reports(
        "200 with an invalid status",
        {"error": {"code": 10**400, "type": {"a": 1}, "message": None}},
        None,
        "unavailable",
    ),
    _says_nothing("choice null", {"choices": [None], "usage": USAGE}),
    _says_nothing("choice without a message", {"choices": [{"finish_reason": "stop"}]}),
    _says_nothing("message null", {"choices": [{"message": None, "finish_reason": "stop"}]}),
    _says_nothing("content a number", completion({"content": 5})),
    _foreign("choices a text", {"choices": "none"}),
    _foreign("choices absent", {"message": {"role": "assistant", "content": GOOD}, "done": True}),
    _foreign("list of something", [1, 2]),
    _foreign("JSON null", None),
    CannedReply(
        "refusal",
        Expected(failure="refused"),
        body=completion({"content": None, "refusal": "I cannot do that."}),
    ),
    CannedReply(
        "refusal as a part",
        Expected(failure="refused"),
        body=completion({"content": [{"type": "refusal", "refusal": "I cannot do that."}]}),
    ),
    CannedReply(
        "filtered, as Gemini says it",
        Expected(failure="refused"),
        body=completion({"content": None}, "SAFETY"),
    ),
    _error(
        "429 with a date",
        429,
        "rate_limited",
        message="slow down",
        code="rate_limit_exceeded",
        headers={"Retry-After": "0"},
        max_requests=_PATIENT,
    ),
)

assert all(case.expect.reported == NO_ERROR or case.status == 200 for case in CASES)
