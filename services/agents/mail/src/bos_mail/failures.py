"""Failures of mailboxes, with types and messages that users see."""

from __future__ import annotations

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType, Unavailable

NOT_CONNECTED = "MailboxNotConnected"
SERVER_UNAVAILABLE = "MailServerUnavailable"
SERVER_REFUSED = "MailServerRefused"
SIGN_IN_REFUSED = "MailboxSignInRefused"
MESSAGE_NOT_FOUND = "MessageNotFound"
SEARCH_NOT_SUPPORTED = "SearchNotSupported"


class OutcomeUncertain(Unavailable):
    """A message was handed to the mail server, and whether it took it is not known.

    An ``Unavailable``, after which the toolbox records the action's outcome as unknown.
    """

    default_reason = "OUTCOME_UNKNOWN"


def not_connected() -> AgentFailure:
    """No mailbox is connected."""
    return AgentFailure(NOT_CONNECTED, "Connect a mailbox with `bos mail connect`, then ask again.")


def unusable(problem: str) -> AgentFailure:
    """The connection that the user made cannot be used."""
    return AgentFailure(
        AgentErrorType.CONFIGURATION_ERROR,
        f"The connected mailbox cannot be used: {problem}. Connect it again with "
        "`bos mail connect`.",
    )


def unavailable(what: str) -> AgentFailure:
    """The mail server cannot be reached, or breaks off."""
    return AgentFailure(
        SERVER_UNAVAILABLE, f"The mail server {what}. Try again later.", retryable=True
    )


def sign_in_refused() -> AgentFailure:
    """The mail server does not accept user name and password."""
    return AgentFailure(
        SIGN_IN_REFUSED,
        "The mail server does not accept the user name and password of the connected mailbox. "
        "Connect it again with `bos mail connect`.",
    )


def message_not_found() -> AgentFailure:
    """There is no such message."""
    return AgentFailure(
        MESSAGE_NOT_FOUND, "There is no such message in the mailbox any more. Search again."
    )
