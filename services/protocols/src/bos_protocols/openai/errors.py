"""Errors in the form of OpenAI's API."""

from __future__ import annotations

import math
from typing import Any

import grpc
from starlette.responses import JSONResponse

from bos_errors import NEUTRAL_INTERNAL_MESSAGE, BosError, InvalidArgument, NotFound

_Code = grpc.StatusCode
_INVALID = "invalid_request_error"
_FORMS = {
    _Code.INVALID_ARGUMENT: (400, _INVALID),
    _Code.FAILED_PRECONDITION: (400, _INVALID),
    _Code.UNAUTHENTICATED: (401, "authentication_error"),
    _Code.PERMISSION_DENIED: (403, "permission_error"),
    _Code.NOT_FOUND: (404, _INVALID),
    _Code.ALREADY_EXISTS: (409, _INVALID),
    _Code.ABORTED: (409, _INVALID),
    _Code.RESOURCE_EXHAUSTED: (429, "rate_limit_error"),
    _Code.UNIMPLEMENTED: (501, _INVALID),
    _Code.UNAVAILABLE: (503, "server_error"),
    _Code.DEADLINE_EXCEEDED: (504, "server_error"),
}


def error_content(error: BosError) -> dict[str, Any]:
    """The error as OpenAI's clients read it."""
    _, kind = _FORMS.get(error.code, (500, "server_error"))
    known = error.code in _FORMS
    return {
        "message": error.message if known else NEUTRAL_INTERNAL_MESSAGE,
        "type": kind,
        "param": error.violations[0].field if error.violations else None,
        "code": error.reason.lower(),
    }


def error_reply(error: BosError) -> JSONResponse:
    """The error as a whole answer, with the time to wait where there is one."""
    status, _ = _FORMS.get(error.code, (500, ""))
    headers = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    return JSONResponse({"error": error_content(error)}, status, headers)


def as_the_client_asked(error: BosError, said: str) -> BosError:
    """The error, with the client's own name for a field that the gateway refuses.

    Args:
        error: Of the gateway.
        said: Field of the client's request that holds what was said.
    """
    if not isinstance(error, InvalidArgument) or not error.violations:
        return error
    field, description = error.violations[0].field, error.violations[0].description
    if field.startswith("request.prefer_agents"):
        return NotFound(
            "There is no such model; use one that /v1/models lists.", reason="MODEL_NOT_FOUND"
        )
    if field in ("request.question", "instructions"):
        return InvalidArgument.field(said, description)
    if field == "request.system_prompt":
        name = said if said == "messages" else "instructions"
        return InvalidArgument.field(name, description)
    if field == "request.conversation_id":
        return InvalidArgument.field("conversation_id", description)
    return error
