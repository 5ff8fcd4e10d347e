"""The one exception tree of Bos: each class stands for one gRPC status.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import grpc

NEUTRAL_INTERNAL_MESSAGE = "Something went wrong inside the service. The failure has been logged."


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
    """The same thing was changed concurrently; read again, then retry."""

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
