"""Failures of agents and their conversion to ``AgentError``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc

from bos.agent.v1 import ProposedAction
from bos.common.v1 import AgentError, Value
from bos_chassis.values import to_value
from bos_errors import NEUTRAL_INTERNAL_MESSAGE, BosError, from_rpc_error
from bos_llm.errors import (
    MODEL_TIMEOUT,
    ModelOutputInvalid,
    ModelRateLimited,
    ModelUnavailable,
)

# Errors of passing conditions. UNKNOWN and INTERNAL are unexpected exceptions in other services,
# retried like unexpected ones here.
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
# The model client has retried these already, with the pauses that the endpoint requested; another
# attempt at the whole step would multiply the load of a busy endpoint.
_REPEATED_ALREADY = (ModelUnavailable, ModelRateLimited, ModelOutputInvalid)


class AgentFailure(BosError):
    """Failure of a step; raise it from anywhere inside ``Agent.execute``.

    Args:
        type: An ``AgentErrorType``, or a CamelCase name of the agent's own.
        message: One or two sentences for users; must be safe to show to any caller.
        details: Facts for debugging, of types that ``to_value`` takes; no secrets.
        retryable: Whether another attempt with the same input may succeed.
        outcome_unknown: Raised by a tool that may have taken effect all the same: an approved
            action is then recorded with an unknown outcome, not as one that was not performed.
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
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(message)
        self.type = type
        self.details: dict[str, Any] = dict(details or {})
        self.retryable = retryable
        self.outcome_unknown = outcome_unknown


class ApprovalNeeded(Exception):
    """A protected tool was called without approval; uncaught, it ends the step AWAITING_APPROVAL.

    Not a ``BosError``, so that code which handles failures does not swallow it.
    """

    def __init__(self, action: ProposedAction) -> None:
        super().__init__(f"{action.tool} needs approval")
        self.action = action


def error_of(exc: BaseException) -> AgentError:
    """Convert an exception to the ``AgentError`` of a result.

    A ``BosError`` keeps its class name and message. Any other exception gives its class name as
    type and a neutral message, because its text may hold secrets or user data.
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
    """``AgentError``; a detail that has no form as a ``Value`` is named by its type."""
    return AgentError(
        type=type,
        message=message,
        details={name: lenient_value(value) for name, value in (details or {}).items()},
        retryable=retryable,
    )


def lenient_value(data: Any) -> Value:
    """``data`` as a value; the name of its type where it cannot be converted.

    For debugging details, which must never fail a step.
    """
    try:
        return to_value(data)
    except (TypeError, ValueError):
        return Value(string_value=f"({type(data).__name__})")
