"""Errors of Bos in the words of A2A."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from bos_errors import (
    NEUTRAL_INTERNAL_MESSAGE,
    AlreadyExists,
    BosError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from structlog.typing import FilteringBoundLogger

NO_TASK = "There is no such task."


def invalid(field: str, description: str) -> InvalidParamsError:
    """The error for one wrong field; its text names it as well."""
    return InvalidParamsError(
        f"{field}: {description}", data={"errors": [{"field": field, "message": description}]}
    )


@contextmanager
def in_words_of_a2a(
    log: FilteringBoundLogger, unworded: Callable[[BosError], None]
) -> Iterator[None]:
    """Raise what fails inside as an error of A2A.

    Args:
        log: Gets unexpected errors, whose details the caller does not see.
        unworded: Called with each error that A2A leaves to its transport, such as a refused
            credential; it may raise that itself.
    """
    try:
        yield
    except A2AError:
        raise
    except BosError as error:
        worded = _worded(error)
        if worded is None:
            unworded(error)
            worded = InternalError(error.message)
        raise worded from error
    except Exception as error:
        log.exception("a request of the A2A endpoint failed")
        raise InternalError(NEUTRAL_INTERNAL_MESSAGE) from error


def _worded(error: BosError) -> A2AError | None:
    """The error with a name in A2A, or None."""
    if isinstance(error, NotFound):
        return TaskNotFoundError(NO_TASK)
    if isinstance(error, FailedPrecondition):
        return UnsupportedOperationError(error.message)
    if isinstance(error, InvalidArgument):
        errors = [{"field": one.field, "message": one.description} for one in error.violations]
        return InvalidParamsError(error.message, data={"errors": errors} if errors else None)
    if isinstance(error, AlreadyExists):
        return InvalidParamsError(error.message)
    return None
