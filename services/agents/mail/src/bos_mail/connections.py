"""The mailbox of a step: from the user's connection to the adapter that speaks its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos_errors import InvalidArgument
from bos_mail.failures import not_connected, unusable
from bos_mail.gmail.mailbox import GmailMailbox, gmail_credentials
from bos_mail.imap.mailbox import ImapMailbox
from bos_mail.net import Endpoint
from bos_mail.writing import address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bos.agent.v1 import AgentInput, ConnectionInput
    from bos_http import HttpClient
    from bos_mail.imap.session import ImapSessions
    from bos_mail.mailbox import Mailbox
    from bos_mail.net import Connector
    from bos_mail.settings import MailSettings

IMAP: Final = "mail.imap"
GMAIL: Final = "mail.gmail"
KINDS: Final = (GMAIL, IMAP)
_SECURITIES: Final = ("implicit", "starttls", "none")


class Mailboxes:
    """Opens the mailbox that the user has connected; one of IMAP before one of Gmail.

    Args:
        settings: Limits.
        connector: Opens sockets to mail servers.
        sessions: Runs IMAP operations.
        http: Calls the Gmail API.
    """

    def __init__(
        self,
        settings: MailSettings,
        connector: Connector,
        sessions: ImapSessions,
        http: HttpClient,
    ) -> None:
        self._settings = settings
        self._connector = connector
        self._sessions = sessions
        self._http = http

    def of(self, input: AgentInput) -> Mailbox:
        """The mailbox of a step.

        Raises:
            AgentFailure: the user has connected none, or its connection is incomplete.
        """
        given = {each.kind: each for each in input.connections}
        for kind in (IMAP, GMAIL):
            if kind in given and kind in input.secrets:
                made = self._imap if kind == IMAP else self._gmail
                return made(given[kind], input.secrets[kind])
        raise not_connected()

    def _imap(self, connection: ConnectionInput, secret: str) -> Mailbox:
        fields = connection.fields
        user = _required(fields, "user")
        imap = _endpoint(fields, "imap", 993)
        smtp = _endpoint(fields, "smtp", 465)
        return ImapMailbox(
            address=_address(fields.get("address", user)),
            user=user,
            password=secret,
            imap=imap,
            smtp=smtp,
            sessions=self._sessions,
            connector=self._connector,
            settings=self._settings,
        )

    def _gmail(self, connection: ConnectionInput, secret: str) -> Mailbox:
        return GmailMailbox(
            address=_address(_required(connection.fields, "address")),
            credentials=gmail_credentials(secret),
            http=self._http,
            settings=self._settings,
        )


def _address(text: str) -> str:
    try:
        return address(text, "address")
    except InvalidArgument:
        raise unusable("its address is not a mail address") from None


def _endpoint(fields: Mapping[str, str], name: str, port: int) -> Endpoint:
    host = _required(fields, f"{name}_host")
    text = fields.get(f"{name}_port", str(port))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise unusable(f"{name}_port is not the number of a port")
    usual = "implicit" if int(text) in (465, 993) else "starttls"
    security = fields.get(f"{name}_security", usual)
    if security not in _SECURITIES:
        raise unusable(f"{name}_security is not one of {', '.join(_SECURITIES)}")
    return Endpoint(host.lower(), int(text), security)


def _required(fields: Mapping[str, str], name: str) -> str:
    if name not in fields or not fields[name].strip():
        raise unusable(f"{name} is missing")
    return fields[name].strip()
