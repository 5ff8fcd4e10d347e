"""Errors in the form of OpenAI's API."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import grpc
from starlette.responses import JSONResponse

from bos_errors import NEUTRAL_INTERNAL_MESSAGE

if TYPE_CHECKING:
    from bos_errors import BosError

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
