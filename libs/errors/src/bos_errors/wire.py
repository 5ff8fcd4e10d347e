"""Errors as gRPC statuses, and back: code, message, ErrorInfo, BadRequest, RetryInfo.

The details are those of ``google.rpc`` in the trailing metadata ``grpc-status-details-bin``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

from bos_errors.tree import (
    NEUTRAL_INTERNAL_MESSAGE,
    Aborted,
    AlreadyExists,
    BosError,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)

ERROR_DOMAIN = "bos"
STATUS_DETAILS_KEY = "grpc-status-details-bin"

# gRPC peers refuse trailing metadata above about 8 KiB, and then the caller would see that refusal
# instead of our error. These bounds keep a status well below it.
_MAX_MESSAGE_CHARS = 800
_MAX_METADATA_CHARS = 200
_MAX_METADATA_ENTRIES = 16
_MAX_DETAIL_BYTES = 4096

# What to say about a status that another party (the gRPC library, a proxy) made up: its text may
# hold addresses or worse, so ours replaces it. RESOURCE_EXHAUSTED of the library means
# one of two things, which its code does not tell apart.
_FOREIGN: dict[grpc.StatusCode, tuple[type[BosError], str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (
        InvalidArgument,
        "A service refused the request as invalid.",
    ),
    grpc.StatusCode.OUT_OF_RANGE: (InvalidArgument, "A service refused a value as out of range."),
    grpc.StatusCode.NOT_FOUND: (NotFound, "A service did not find what was asked for."),
    grpc.StatusCode.ALREADY_EXISTS: (AlreadyExists, "It exists already."),
    grpc.StatusCode.PERMISSION_DENIED: (PermissionDenied, "A service did not permit the call."),
    grpc.StatusCode.UNAUTHENTICATED: (Unauthenticated, "A service did not accept the credentials."),
    grpc.StatusCode.FAILED_PRECONDITION: (
        FailedPrecondition,
        "A service is not in a state for it.",
    ),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (
        ResourceExhausted,
        "A service refused the call: the message is too large or too many calls run at once.",
    ),
    grpc.StatusCode.UNAVAILABLE: (Unavailable, "A service is not reachable at the moment."),
    grpc.StatusCode.DEADLINE_EXCEEDED: (DeadlineExceeded, "A service did not answer in time."),
    # A caller that cancels gets asyncio.CancelledError, and a Bos service that cancels says why. A
    # bare CANCELLED is a server that went away: gRPC drops calls that arrive as it stops like that.
    grpc.StatusCode.CANCELLED: (Unavailable, "A service ended the call; it may be restarting."),
    grpc.StatusCode.ABORTED: (Aborted, "A service aborted the call."),
    grpc.StatusCode.UNIMPLEMENTED: (Unimplemented, "A service does not offer this method."),
}
# Downstream failures that are true for our own caller too. Any other one means that *we* called
# wrongly, so it must not be passed on as if the caller had.
_PASSED_ON = (Unavailable, DeadlineExceeded, Cancelled, ResourceExhausted)


def to_status(exc: BaseException) -> status_pb2.Status:
    """The wire form of ``exc``: code, message, ErrorInfo, and BadRequest or RetryInfo if any.

    Exceptions outside the tree become INTERNAL with neutral text; their own text never leaves.
    """
    if isinstance(exc, grpc.RpcError):
        translated = from_rpc_error(exc)
        exc = translated if isinstance(translated, _PASSED_ON) else exc
    if not isinstance(exc, BosError):
        exc = Internal(NEUTRAL_INTERNAL_MESSAGE)
    status = status_pb2.Status(
        code=exc.code.value[0], message=_shorten(exc.message, _MAX_MESSAGE_CHARS)
    )
    for detail in _details(exc):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def from_rpc_error(exc: grpc.RpcError) -> BosError:
    """The exception that the peer raised, or the nearest one for a status that is not ours.

    Raise the result ``from exc`` (``bos_chassis.channels.translate_rpc_errors`` does).
    """
    if not isinstance(exc, grpc.aio.AioRpcError | grpc.Call):
        return Internal(NEUTRAL_INTERNAL_MESSAGE)
    if (restored := _restored(exc)) is not None:
        return restored
    cls, text = _FOREIGN.get(exc.code(), (Internal, NEUTRAL_INTERNAL_MESSAGE))
    return cls(text)


def is_worded_by_peer(exc: grpc.RpcError) -> bool:
    """Whether the message of :func:`from_rpc_error` is the peer's own, and not one of ours."""
    if not isinstance(exc, grpc.aio.AioRpcError | grpc.Call):
        return False
    return _restored(exc) is not None


async def abort_with(context: grpc.aio.ServicerContext[Any, Any], exc: BaseException) -> NoReturn:
    """End the server call with the status of ``exc``.

    Raises:
        grpc.aio.AbortError: always; it must reach the gRPC library.
    """
    status = to_status(exc)
    metadata = (
        *((key, value) for key, value in context.trailing_metadata() or ()),
        (STATUS_DETAILS_KEY, status.SerializeToString()),
    )
    await context.abort(status_code(status.code), status.message, metadata)
    raise AssertionError("context.abort returned")


def status_code(number: int) -> grpc.StatusCode:
    """The ``grpc.StatusCode`` of a wire number; UNKNOWN for numbers that gRPC does not define."""
    for code in grpc.StatusCode:
        if code.value[0] == number:
            return code
    return grpc.StatusCode.UNKNOWN


def _details(exc: BosError) -> Iterator[message.Message]:
    yield error_details_pb2.ErrorInfo(
        reason=exc.reason,
        domain=ERROR_DOMAIN,
        metadata={
            key: _shorten(value, _MAX_METADATA_CHARS)
            for key, value in list(exc.metadata.items())[:_MAX_METADATA_ENTRIES]
        },
    )
    if exc.violations:
        yield _bad_request(exc.violations)
    if exc.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(math.ceil(max(0.0, exc.retry_after_s) * 1000))
        yield error_details_pb2.RetryInfo(retry_delay=delay)


def _bad_request(violations: Sequence[FieldViolation]) -> error_details_pb2.BadRequest:
    bad = error_details_pb2.BadRequest()
    for index, violation in enumerate(violations):
        bad.field_violations.add(
            field=_shorten(violation.field, _MAX_METADATA_CHARS),
            description=_shorten(violation.description, _MAX_METADATA_CHARS),
        )
        if bad.ByteSize() > _MAX_DETAIL_BYTES:
            del bad.field_violations[-1]
            bad.field_violations.add(description=f"and {len(violations) - index} more")
            break
    return bad


def _restored(exc: grpc.aio.AioRpcError | grpc.Call) -> BosError | None:
    """The exception that the peer raised; None if it says nothing that we understand."""
    for key, value in exc.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            restored = _from_status_bytes(value)
            if restored is not None:
                return restored
    return None


def _from_status_bytes(value: bytes) -> BosError | None:
    try:
        status = status_pb2.Status.FromString(value)
    except message.DecodeError:
        return None
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        for target in (info, bad, retry):
            detail.Unpack(target)
    if info.domain != ERROR_DOMAIN:
        return None
    cls = _class_for(status_code(status.code), info.reason)
    # Subclasses are free to have a constructor of their own, so only the root's is relied on.
    error = cls.__new__(cls)
    BosError.__init__(error, status.message, reason=info.reason, metadata=info.metadata)
    error.violations = tuple(FieldViolation(v.field, v.description) for v in bad.field_violations)
    if retry.HasField("retry_delay"):
        error.retry_after_s = retry.retry_delay.ToMilliseconds() / 1000
    return error


def _class_for(code: grpc.StatusCode, reason: str) -> type[BosError]:
    for cls in _subclasses(BosError):
        if cls.code is code and cls.default_reason == reason:
            return cls
    return _FOREIGN.get(code, (Internal, ""))[0]


def _subclasses(cls: type[BosError]) -> Iterable[type[BosError]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
