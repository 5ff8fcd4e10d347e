"""Model calls with a fallback: a reply in time, or :class:`NoReply` for any failure.

::

    try:
        reply = await attempt(model, lambda: messages, Verdict, within_s=15)
    except NoReply as failure:
        ...  # what is done without a model; failure.message is safe for people
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import BaseModel

from bos_chassis.deadlines import timeout_for
from bos_errors import BosError, Internal
from bos_llm.errors import MODEL_TIMEOUT, ModelNotConfigured
from bos_llm.usage import Usage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from structlog.typing import FilteringBoundLogger

    from bos_llm.messages import Message
    from bos_llm.model import Completion, Model, Structured, TextDelta

T = TypeVar("T", bound=BaseModel)

RESERVE_S: Final = 0.5
"""What remains of the caller's time when the model has had its share: enough to do without it."""


class NoReply(Exception):
    """A model gave nothing that can be used; callers raise it too, for replies that are no use.

    Outside of the ``BosError`` tree, so that it is not taken for a failure of something else.
    Cancellation is never one.

    Args:
        message: Why, in a sentence for people.
        reason: The same for programs, such as ``MODEL_TIMEOUT``.
        usage: What the calls cost nevertheless.
        error_type: Class name of the error, for logs.
    """

    def __init__(
        self,
        message: str,
        reason: str,
        usage: Usage | None = None,
        *,
        error_type: str = "NoReply",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.usage = usage or Usage()
        self.error_type = error_type

    @property
    def not_configured(self) -> bool:
        """Whether no model is set, which is a way to run Bos and no error."""
        return self.reason == ModelNotConfigured.default_reason


async def attempt(
    model: Model | None,
    prompt: Callable[[], Sequence[Message]],
    schema: type[T],
    *,
    within_s: float,
    max_tokens: int | None = None,
    form_in: Literal["system", "last"] = "system",
    log: FilteringBoundLogger | None = None,
) -> Structured[T]:
    """A reply as a value of ``schema``, for callers that can do without.

    Args:
        model: Whom to ask; None if the process has no model.
        prompt: Makes the messages; not called if no model is configured.
        schema: What the reply must be.
        within_s: Time for the call, retries included. It ends ``RESERVE_S`` before the deadline of
            the server call in progress in any case.
        max_tokens: As for ``Model.structured``.
        form_in: As for ``Model.structured``.
        log: Where an unexpected exception is logged, which then is no reply either. None: it is
            a defect that the caller wants to see.

    Raises:
        NoReply: no model is configured, it is away, declines, is late or writes nothing that fits,
            or the token budget is spent.
    """
    asked = _configured(model)
    with _failures_as_no_reply(log):
        async with asyncio.timeout(_share_s(within_s)):
            return await asked.structured(prompt(), schema, max_tokens=max_tokens, form_in=form_in)


async def stream(
    model: Model | None,
    prompt: Callable[[], Sequence[Message]],
    *,
    within_s: float,
    patient: bool = True,
    log: FilteringBoundLogger | None = None,
) -> AsyncGenerator[TextDelta | Completion, None]:
    """The pieces of a reply, then the whole, for callers that can do without.

    Arguments as for :func:`attempt`, ``patient`` as for ``Model.stream``. Close the generator
    (``contextlib.aclosing``) when leaving early.

    Raises:
        NoReply: as for :func:`attempt`, before the first piece or after any.
    """
    asked = _configured(model)
    deadline = asyncio.get_running_loop().time() + _share_s(within_s)
    with _failures_as_no_reply(log):
        async with aclosing(asked.stream(prompt(), patient=patient)) as items:
            while True:
                # Around each item alone: a time limit around a yield would hit our caller.
                async with asyncio.timeout_at(deadline):
                    item = await anext(items, None)
                if item is None:
                    return
                yield item


def _configured(model: Model | None) -> Model:
    if model is None or not model.configured:
        raise NoReply(
            "No model is configured.",
            ModelNotConfigured.default_reason,
            error_type=ModelNotConfigured.__name__,
        )
    return model


def _share_s(within_s: float) -> float:
    return max(0.0, timeout_for(within_s + RESERVE_S, 0) - RESERVE_S)


@contextmanager
def _failures_as_no_reply(log: FilteringBoundLogger | None) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise NoReply(
            "The model took too long.", MODEL_TIMEOUT, error_type=TimeoutError.__name__
        ) from None
    except BosError as error:
        usage = getattr(error, "usage", None)
        kind = type(error).__name__
        raise NoReply(error.message, error.reason, usage, error_type=kind) from error
    except Exception as error:
        if log is None:
            raise
        # The log keeps what happened; its text may hold anything.
        log.exception("model call failed unexpectedly")
        raise NoReply(
            "The model could not be asked.",
            Internal.default_reason,
            error_type=type(error).__name__,
        ) from error
