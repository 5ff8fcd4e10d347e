"""How an agent says that it could not do its task, and what the gateway is told about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from bos.common.v1 import AgentError, Value
from bos_chassis.values import to_value
from bos_errors import NEUTRAL_INTERNAL_MESSAGE, BosError, from_rpc_error
from bos_llm.errors import (
    MODEL_TIMEOUT,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos.agent.v1 import ProposedAction

# Types of errors that agents report; an unexpected exception is reported by its class name.
PLANNING_DECLINED = "PlanningDeclined"
QUERY_ERROR = "QueryError"
HTTP_ERROR = "HttpError"
HTTP_REQUEST_ERROR = "HttpRequestError"
PATH_RESOLUTION_ERROR = "PathResolutionError"
SANDBOX_VIOLATION = "SandboxViolation"
CONFIGURATION_ERROR = "ConfigurationError"

RETRYABLE_DETAIL = "retryable"
"""Key in ``AgentError.details`` (bool): whether another attempt may end better."""

# The state of the world may be another one next time. UNKNOWN and INTERNAL are unexpected
# exceptions elsewhere, and those are retried like our own.
_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
# Model calls have been repeated already as often as it was worth it, with the pauses that the
# endpoint asked for; a whole step on top would multiply that, at the expense of a busy endpoint.
_REPEATED_ALREADY = (ModelUnavailable, ModelRateLimited, ModelOutputInvalid)


class AgentFailure(BosError):
    """The task cannot be done; raise it from anywhere inside ``Agent.execute``.

    Args:
        type: One of the constants of this module, or a CamelCase name of the agent's own.
        message: One or two sentences for a person; must be safe to show to any caller.
        details: Facts for debugging, of types that ``to_value`` takes; no secrets.
        retryable: Whether another attempt with the same input may end better.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION
    default_reason = "AGENT_FAILURE"

    def __init__(
        self,
        type: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.details: dict[str, Any] = dict(details or {})
        self.retryable = retryable


class ApprovalNeeded(Exception):
    """A protected tool was called; left alone, it ends the step AWAITING_APPROVAL.

    Outside of the ``BosError`` tree, so that code which mends failures does not swallow it.
    """

    def __init__(self, action: ProposedAction) -> None:
        super().__init__(f"{action.tool} needs approval")
        self.action = action


def error_of(exc: BaseException) -> AgentError:
    """What the result says about ``exc``.

    Errors of the Bos tree keep their class name and their message. Any other exception gives its
    class name as type, and a neutral message: its own text may hold anything.
    """
    if isinstance(exc, AgentFailure):
        return agent_error(exc.type, exc.message, exc.details, retryable=exc.retryable)
    if isinstance(exc, grpc.RpcError):
        exc = from_rpc_error(exc)
    if isinstance(exc, BosError):
        return agent_error(
            type(exc).__name__,
            exc.message,
            {
                "reason": exc.reason,
                **exc.metadata,
                **{violation.field: violation.description for violation in exc.violations},
            },
            retryable=_is_transient(exc),
        )
    return agent_error(type(exc).__name__, NEUTRAL_INTERNAL_MESSAGE, retryable=True)


def _is_transient(exc: BosError) -> bool:
    if isinstance(exc, _REPEATED_ALREADY) or exc.reason == MODEL_TIMEOUT:
        return False
    return exc.code in _TRANSIENT


def agent_error(
    type: str, message: str, details: Mapping[str, Any] | None = None, *, retryable: bool = False
) -> AgentError:
    """An ``AgentError`` whose details say whether a retry makes sense."""
    return AgentError(
        type=type,
        message=message,
        details={
            **{name: lenient_value(value) for name, value in (details or {}).items()},
            RETRYABLE_DETAIL: to_value(retryable),
        },
    )


def lenient_value(data: Any) -> Value:
    """``data`` as a value, or the name of its type if it has none.

    For details that people look at: they must never be the reason why a step fails.
    """
    try:
        return to_value(data)
    except (TypeError, ValueError):
        return Value(string_value=f"({type(data).__name__})")


def is_retryable(error: AgentError) -> bool:
    """Whether ``error`` says that another attempt may end better; False if it says nothing."""
    return (
        error.details[RETRYABLE_DETAIL].bool_value if RETRYABLE_DETAIL in error.details else False
    )
