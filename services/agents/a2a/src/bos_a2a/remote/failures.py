"""Failures of calls of a remote agent, by what the guarded client saw; its words are not used."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtensionSupportRequiredError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)

from bos_a2a.remote.definition import UnusableCard
from bos_agentkit.foreign import CallFailed
from bos_errors import BosError
from bos_http import HttpRefused

if TYPE_CHECKING:
    from bos_http.endpoints import Exchange

# After these errors the agent has not begun to work on the message.
_REFUSALS = (
    *(ContentTypeNotSupportedError, ExtensionSupportRequiredError, InvalidParamsError),
    *(InvalidRequestError, JSONParseError, MethodNotFoundError, TaskNotFoundError),
    *(UnsupportedOperationError, VersionNotSupportedError),
)
_NO_CREDENTIALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_LATER = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})


def refused(error: Exception) -> bool:
    """Whether the agent says that it does not take a message."""
    return isinstance(error, A2AError) and isinstance(error, _REFUSALS)


def not_sent(where: str, error: Exception, exchange: Exchange) -> CallFailed | None:
    """Failure of a message that the agent did not begin to work on; None if it may have."""
    if exchange.error is not None:
        if not exchange.is_unsent:
            return None
        return CallFailed(
            f"The remote agent {where} cannot be called. {exchange.error.message}",
            reached=False,
            retryable=not isinstance(exchange.error, HttpRefused),
        )
    if exchange.status in _NO_CREDENTIALS:
        return CallFailed(no_credentials(where), reached=False, retryable=False)
    if 300 <= exchange.status < 500 or refused(error):
        return CallFailed(
            f"The remote agent {where} refused the message.",
            reached=False,
            retryable=exchange.status in _LATER,
        )
    return None


def lost(where: str, exchange: Exchange) -> CallFailed:
    """Failure of a message that the agent may be working on, or have worked on."""
    if exchange.error is not None:
        why = f"cannot be followed. {exchange.error.message}"
    else:
        why = "failed, or its answers are not valid A2A."
    return CallFailed(
        f"The remote agent {where} {why}",
        reached=True,
        retryable=not isinstance(exchange.error, HttpRefused),
    )


def late(where: str, *, reached: bool) -> CallFailed:
    """Failure of a message whose time is up."""
    return CallFailed(
        f"The remote agent {where} did not finish in time.", reached=reached, retryable=False
    )


def why_away(where: str, error: Exception, exchange: Exchange) -> str:
    """Why there is no card, for users; without words of the agent."""
    if isinstance(error, BosError):
        return error.message
    if isinstance(error, UnusableCard):
        return f"The remote agent {where} cannot be used: it {error}."
    if exchange.error is not None:
        return f"The remote agent {where} cannot be called. {exchange.error.message}"
    if exchange.status in _NO_CREDENTIALS:
        return no_credentials(where)
    if isinstance(error, TimeoutError):
        return f"The remote agent {where} does not answer in time."
    return f"The remote agent {where} is away, or its card is not valid A2A."


def no_credentials(where: str) -> str:
    """That credentials are not accepted, and what to do."""
    return (
        f"The remote agent {where} does not accept the credentials; correct token, token_file or "
        "headers in BOS_A2A_SERVERS."
    )
