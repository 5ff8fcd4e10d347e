"""SMTP: sends one message; its outcome is accepted, refused or unknown."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPException,
    SMTPResponseException,
)

from bos_agentkit import AgentFailure
from bos_mail.failures import (
    SERVER_REFUSED,
    OutcomeUncertain,
    sign_in_refused,
    unavailable,
)
from bos_mail.mailbox import Outgoing
from bos_mail.net import Connector, Endpoint


@asynccontextmanager
async def announced(
    connector: Connector,
    endpoint: Endpoint,
    user: str,
    password: str,
    outgoing: Outgoing,
    *,
    command_timeout_s: float,
) -> AsyncIterator[SMTP]:
    """A connection to a server that has taken sender and recipients, and waits for the message.

    Raises:
        AgentFailure: the server cannot be reached or refuses; nothing was sent.
    """
    sock = await connector.socket(endpoint)
    smtp = SMTP(
        hostname=endpoint.host,
        port=None,
        sock=sock,
        use_tls=endpoint.security == "implicit",
        start_tls=False,
        tls_context=connector.tls,
        timeout=command_timeout_s,
        local_hostname="localhost",
    )
    try:
        await _opened(smtp, endpoint, user, password)
        await _announce(smtp, outgoing)
        yield smtp
    finally:
        # The event loop owns the socket since it is connected: closed here, its number could be
        # another one's before the loop lets go of it.
        transport = smtp.transport
        smtp.close()
        if transport is not None:  # of the event loop's own type
            cast("asyncio.WriteTransport", transport).abort()


async def transmit(smtp: SMTP, outgoing: Outgoing) -> None:
    """Hand a message that was announced to the server, for all recipients or for none.

    Raises:
        AgentFailure: it was certainly not taken.
        OutcomeUncertain: the connection broke off, or time was over, after the message was begun
            to be sent.
    """
    try:
        await smtp.data(outgoing.content)
    except SMTPResponseException as error:
        raise _refused("the message", error) from None
    except (SMTPException, OSError, TimeoutError):
        raise OutcomeUncertain(
            "The connection to the mail server broke off while the message was being sent."
        ) from None


async def _opened(smtp: SMTP, endpoint: Endpoint, user: str, password: str) -> None:
    try:
        await smtp.connect()
        if endpoint.security == "starttls":
            await smtp.starttls(server_hostname=endpoint.host)
        if endpoint.security == "none":
            await smtp.ehlo()  # only then is known what it supports
            if not smtp.supports_extension("auth"):
                return  # a server on this machine that knows no users
        await smtp.login(user, password)
    except SMTPAuthenticationError:
        raise sign_in_refused() from None
    except ssl.SSLError:
        raise unavailable("does not prove who it is (TLS)") from None
    except (SMTPException, OSError, TimeoutError, asyncio.IncompleteReadError):
        raise unavailable("cannot be reached for sending, or broke off") from None


async def _announce(smtp: SMTP, outgoing: Outgoing) -> None:
    what = "the sender"
    try:
        await smtp.mail(outgoing.sender)
        for recipient in outgoing.recipients:
            what = f"the recipient {recipient}"
            await smtp.rcpt(recipient)
    except SMTPResponseException as error:
        raise _refused(what, error) from None
    except (SMTPException, OSError, TimeoutError):
        raise unavailable("broke off before the message was sent") from None


def _refused(what: str, error: SMTPResponseException) -> AgentFailure:
    is_passing = 400 <= error.code < 500
    return AgentFailure(
        SERVER_REFUSED,
        f"The mail server does not take {what} (code {error.code}); nothing was sent.",
        retryable=is_passing,
    )
