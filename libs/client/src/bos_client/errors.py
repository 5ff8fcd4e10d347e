"""What can go wrong, as callers of the client see it.

::

    BosError
    ├── InvalidArgument      the request is wrong; see ``violations``
    ├── NotFound             no such run
    ├── AlreadyExists        the request id was used for another question
    ├── Unauthenticated      no API key, or a wrong one
    ├── PermissionDenied     the key may not do this
    ├── FailedPrecondition   the service is not in a state for it
    ├── ResourceExhausted    a limit is reached; see ``retry_after_s``
    ├── Unavailable          not reachable, or the connection was lost
    ├── DeadlineExceeded     the time given to the call ran out
    ├── Cancelled            the work was cancelled
    ├── Unimplemented        the service does not offer this
    └── Internal             a defect of the service

``reason`` is the stable identity of a failure; messages are for people and may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DOMAIN = "bos"
_DETAILS_KEY = "grpc-status-details-bin"


@dataclass(frozen=True, slots=True)
class FieldViolation:
    """One unusable field of a request."""

    field: str
    """Path of the field, for example ``request.prefer_agents``."""
    description: str
    """What is wrong and how to mend it."""


class BosError(Exception):
    """A failure of a call.

    Args:
        message: One sentence for a person.
        reason: Stable UPPER_SNAKE identity; the name of the code where the service gave none.
        violations: Unusable fields, if the request is at fault.
        retry_after_s: When trying again makes sense, in seconds, if the service said so.
        metadata: Small facts for programs.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        violations: Sequence[FieldViolation] = (),
        retry_after_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.code.name
        self.violations = tuple(violations)
        self.retry_after_s = retry_after_s
        self.metadata = dict(metadata or {})


class InvalidArgument(BosError):
    """The request itself is wrong; the same request will fail again."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(BosError):
    """The named run does not exist, or belongs to somebody else."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(BosError):
    """The request id belongs to another question."""

    code = grpc.StatusCode.ALREADY_EXISTS


class Unauthenticated(BosError):
    """The API key is missing or wrong."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(BosError):
    """The caller is known and may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class FailedPrecondition(BosError):
    """The state of the service does not allow the call."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhausted(BosError):
    """A limit is reached: too many runs, or a message too large."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(BosError):
    """The service cannot be reached, or the connection to it was lost."""

    code = grpc.StatusCode.UNAVAILABLE


class DeadlineExceeded(BosError):
    """The time given to the call ran out. A run that was accepted goes on."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Cancelled(BosError):
    """The work was cancelled on request."""

    code = grpc.StatusCode.CANCELLED


class Unimplemented(BosError):
    """The service does not offer this."""

    code = grpc.StatusCode.UNIMPLEMENTED


class Internal(BosError):
    """A defect of the service."""

    code = grpc.StatusCode.INTERNAL


_CLASSES: tuple[type[BosError], ...] = (
    *(InvalidArgument, NotFound, AlreadyExists, Unauthenticated, PermissionDenied),
    *(FailedPrecondition, ResourceExhausted, Unavailable, DeadlineExceeded, Cancelled),
    *(Unimplemented, Internal),
)
_BY_CODE: dict[grpc.StatusCode, type[BosError]] = {
    **{cls.code: cls for cls in _CLASSES},
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.ABORTED: FailedPrecondition,
}
# Statuses that the gRPC library or a proxy made up: their own text may hold anything.
_FOREIGN_TEXT: dict[type[BosError], str] = {
    Unavailable: "The service cannot be reached.",
    DeadlineExceeded: "The service did not answer in time.",
    ResourceExhausted: "The message is too large, or too many calls run at once.",
    Unimplemented: "The service does not offer this; it may be of another version.",
    Unauthenticated: "The service did not accept the credentials.",
    PermissionDenied: "The service did not permit the call.",
}

_TLS_PROBLEMS = {
    "CERTIFICATE_VERIFY_FAILED": "The service's certificate is expired, or is from no authority "
    "that you believe: give the right one by --ca-file (or BOS_CA_FILE).",
    "Hostname Verification": "The service's certificate is for another host: call it by the name "
    "that its certificate holds (--target), or have one issued for this name.",
    "WRONG_VERSION_NUMBER": "The service speaks no TLS there: call it without --ca-file "
    "(BOS_CA_FILE) and grpcs://, or correct --target.",
    "CERTIFICATE_REQUIRED": "The service demands a certificate of its callers: give one by "
    "--cert-file and --key-file (BOS_CERT_FILE, BOS_KEY_FILE).",
}


def from_rpc_error(error: grpc.RpcError) -> BosError:
    """The typed form of ``error``; raise it ``from error``."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return Internal("The call failed.")
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            restored = _from_status(value, error.code())
            if restored is not None:
                return restored
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE and (problem := _tls_problem(error.details() or "")):
        return FailedPrecondition(problem, reason="TLS_REFUSED")
    if code is grpc.StatusCode.CANCELLED:
        # A caller that cancels gets asyncio.CancelledError, and a service that cancels says why. A
        # bare CANCELLED comes from a server that stopped while the call arrived.
        return Unavailable(_FOREIGN_TEXT[Unavailable])
    cls = _BY_CODE.get(code, Internal)
    return cls(_FOREIGN_TEXT.get(cls, "The service could not do it."))


def _tls_problem(details: str) -> str:
    """What is wrong with the certificates, by what the library says of a failed connection."""
    return next((text for sign, text in _TLS_PROBLEMS.items() if sign in details), "")


def _from_status(value: bytes, code: grpc.StatusCode) -> BosError | None:
    try:
        status = status_pb2.Status.FromString(value)
    except DecodeError:
        return None
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        for target in (info, bad_request, retry):
            detail.Unpack(target)
    if info.domain != _DOMAIN:
        return None
    return _BY_CODE.get(code, Internal)(
        status.message,
        reason=info.reason,
        violations=[FieldViolation(v.field, v.description) for v in bad_request.field_violations],
        retry_after_s=retry.retry_delay.ToMilliseconds() / 1000
        if retry.HasField("retry_delay")
        else None,
        metadata=info.metadata,
    )
