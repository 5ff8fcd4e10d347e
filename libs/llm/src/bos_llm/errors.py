"""Errors of model calls, as seen by the caller.

Every one is a :class:`bos_errors.BosError`. Their text is ours: what an endpoint writes
into an error body may hold keys or prompts and is never repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bos_errors import FailedPrecondition, Internal, ResourceExhausted, Unavailable

if TYPE_CHECKING:
    from bos_llm.usage import Usage

MODEL_TIMEOUT = "MODEL_TIMEOUT"
"""Reason of failures of time that went into waiting for a model."""


class ModelNotConfigured(FailedPrecondition):
    """No usable model: a variable is missing, or the endpoint refuses the key or the model name."""

    default_reason = "MODEL_NOT_CONFIGURED"


class ModelUnavailable(Unavailable):
    """The endpoint cannot be reached, fails, is too slow, or talks something else than its API."""

    default_reason = "MODEL_UNAVAILABLE"


class ModelRateLimited(ResourceExhausted):
    """The endpoint admits no more calls for now; ``retry_after_s`` if it said how long."""

    default_reason = "MODEL_RATE_LIMITED"


class ModelRequestRejected(FailedPrecondition):
    """The endpoint does not accept this kind of request, such as structured output."""

    default_reason = "MODEL_REQUEST_REJECTED"


class BudgetExhausted(FailedPrecondition):
    """The tokens that the work in progress may consume are used up; the call was not sent.

    Not ``ResourceExhausted``: waiting does not help, and the same work would end the same way.
    """

    default_reason = "BUDGET_EXHAUSTED"
    usage: Usage | None = None
    """What calls before it cost, if it is the second half of a structured call."""


class ModelRefused(FailedPrecondition):
    """The model or a content filter declined to answer."""

    default_reason = "MODEL_REFUSED"
    usage: Usage | None = None
    """What the calls cost nevertheless."""

    def __init__(self, message: str, *, usage: Usage | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.usage = usage


class ModelOutputInvalid(Internal):
    """The model's reply is empty, or violates the schema even after one repair attempt."""

    default_reason = "MODEL_OUTPUT_INVALID"
    usage: Usage | None = None
    """What the calls cost nevertheless."""

    def __init__(self, message: str, *, usage: Usage | None = None, **kwargs: Any) -> None:
        super().__init__(message, **kwargs)
        self.usage = usage
