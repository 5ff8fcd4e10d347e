from __future__ import annotations

import asyncio
from typing import Any

import grpc

from bos_chassis.interceptors.concern import ServerCall
from bos_errors import DeadlineExceeded, status_code, to_status


def code_set_by_handler(context: grpc.aio.ServicerContext[Any, Any]) -> grpc.StatusCode:
    """The code that the handler chose through the context; OK if it chose none."""
    code: Any = context.code()  # the number in some versions of the library, the enum in others
    if isinstance(code, grpc.StatusCode):
        return code
    return status_code(int(code or 0))


def code_of(
    exc: BaseException, call: ServerCall, context: grpc.aio.ServicerContext[Any, Any]
) -> grpc.StatusCode:
    """The status code that ``exc``, leaving the handler, stands for."""
    if isinstance(exc, grpc.aio.AbortError):
        return code_set_by_handler(context)
    if isinstance(exc, asyncio.CancelledError):
        # The library cancels for two reasons: the client went away, or its deadline passed.
        late = call.timeout_s is not None and call.duration_s >= call.timeout_s
        return grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
    return status_code(to_status(exc).code)


def time_is_up(timeout_s: float | None) -> DeadlineExceeded:
    """The error for a handler that used all of its time."""
    limit = "its deadline" if timeout_s is None else f"its deadline of {timeout_s:.3g} s"
    return DeadlineExceeded(f"The call did not finish within {limit}.")


def message_is_late(timeout_s: float) -> DeadlineExceeded:
    """The error for a call whose message is not there in time."""
    return DeadlineExceeded(
        f"The call was not complete within {timeout_s:.3g} s: send its message right behind its "
        "headers.",
        reason="MESSAGE_TIMEOUT",
    )
