"""The one exception tree of Bos, and its translation to and from gRPC status.

::

    BosError
    ├── InvalidArgument        INVALID_ARGUMENT      carries field violations
    ├── NotFound               NOT_FOUND
    ├── AlreadyExists          ALREADY_EXISTS
    ├── PermissionDenied       PERMISSION_DENIED     known caller, not allowed
    ├── Unauthenticated        UNAUTHENTICATED       unknown caller
    ├── FailedPrecondition     FAILED_PRECONDITION
    │   └── ConfigurationError                       names the setting and the fix
    ├── ResourceExhausted      RESOURCE_EXHAUSTED    may carry retry_after_s
    ├── Unavailable            UNAVAILABLE           may carry retry_after_s
    ├── DeadlineExceeded       DEADLINE_EXCEEDED
    ├── Cancelled              CANCELLED
    ├── Aborted                ABORTED
    ├── Unimplemented          UNIMPLEMENTED
    └── Internal               INTERNAL              neutral text only

A member that needs a name of its own subclasses one of these and sets ``default_reason``. On the
wire the *reason* (``google.rpc.ErrorInfo.reason``) is the stable identity of a failure: a client
restores the class whose ``code`` and ``default_reason`` match, or else the class of the code.
Nothing in Bos recognises an error by its message.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import grpc
from google.protobuf import any_pb2, duration_pb2, message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ERROR_DOMAIN = "bos"
STATUS_DETAILS_KEY = "grpc-status-details-bin"
NEUTRAL_INTERNAL_MESSAGE = "Something went wrong inside the service. The failure has been logged."

# gRPC peers refuse trailing metadata above about 8 KiB, and then the caller would see that refusal
# instead of our error. These bounds keep a status well below it.
_MAX_MESSAGE_CHARS = 800
_MAX_METADATA_CHARS = 200
_MAX_METADATA_ENTRIES = 16
_MAX_DETAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One unusable field of a request."""

    field: str
    """Path of the field as in the proto, for example ``plan.steps[2].agent``."""
    description: str
    """What is wrong and how to mend it, in one sentence."""


class BosError(Exception):
    """A failure that Bos understands.

    Args:
        message: One sentence for a person; must be safe to show to any caller.
        reason: Stable UPPER_SNAKE identity of the failure; the class's ``default_reason`` if None.
        metadata: Small string facts for programs (ids, limits); no secrets, no user data.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN
    default_reason: ClassVar[str] = "UNKNOWN"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata: dict[str, str] = dict(metadata or {})
        self.violations: tuple[FieldViolation, ...] = ()
        self.retry_after_s: float | None = None


class InvalidArgument(BosError):
    """The request itself is wrong; the same request will fail again."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    default_reason = "INVALID_ARGUMENT"

    def __init__(
        self,
        message: str,
        violations: Sequence[FieldViolation] = (),
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.violations = tuple(violations)

    @classmethod
    def field(cls, field: str, description: str) -> Self:
        """One wrong field: the message names it as well, for callers that read no details."""
        return cls(f"{field}: {description}", (FieldViolation(field, description),))


class NotFound(BosError):
    """The named thing does not exist, or the caller may not know that it does."""

    code = grpc.StatusCode.NOT_FOUND
    default_reason = "NOT_FOUND"


class AlreadyExists(BosError):
    """The name or the request id is taken by something else."""

    code = grpc.StatusCode.ALREADY_EXISTS
    default_reason = "ALREADY_EXISTS"


class PermissionDenied(BosError):
    """The caller is known and may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED
    default_reason = "PERMISSION_DENIED"


class Unauthenticated(BosError):
    """The call carries no valid credential."""

    code = grpc.StatusCode.UNAUTHENTICATED
    default_reason = "UNAUTHENTICATED"


class FailedPrecondition(BosError):
    """The state of the system does not allow the call; it must change before a retry."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    default_reason = "FAILED_PRECONDITION"


class ConfigurationError(FailedPrecondition):
    """A setting is missing or wrong. The message names the variable and the fix."""

    default_reason = "CONFIGURATION"


class _Retryable(BosError):
    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, reason=reason, metadata=metadata)
        self.retry_after_s = retry_after_s


class ResourceExhausted(_Retryable):
    """A limit is reached: quota, budget, size or concurrency. ``retry_after_s`` is in seconds."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_reason = "RESOURCE_EXHAUSTED"


class Unavailable(_Retryable):
    """A service or store is not reachable at the moment. ``retry_after_s`` is in seconds."""

    code = grpc.StatusCode.UNAVAILABLE
    default_reason = "UNAVAILABLE"


class DeadlineExceeded(BosError):
    """The time given to the call ran out."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    default_reason = "DEADLINE_EXCEEDED"


class Cancelled(BosError):
    """The work was cancelled on request."""

    code = grpc.StatusCode.CANCELLED
    default_reason = "CANCELLED"


class Aborted(BosError):
    """Somebody else changed the same thing first; read again, then retry."""

    code = grpc.StatusCode.ABORTED
    default_reason = "ABORTED"


class Unimplemented(BosError):
    """The service does not offer this method or option."""

    code = grpc.StatusCode.UNIMPLEMENTED
    default_reason = "UNIMPLEMENTED"


class Internal(BosError):
    """A defect of ours. The message must stay neutral; the cause belongs into the log."""

    code = grpc.StatusCode.INTERNAL
    default_reason = "INTERNAL"


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

    Raise the result ``from exc`` (``translate_rpc_errors`` in :mod:`bos_chassis.channels` does).
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
