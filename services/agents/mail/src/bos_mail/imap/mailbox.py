"""IMAP mailbox: search, read, drafts, and sending at most once, tracked in the mailbox itself.

::

    send:  SMTP up to the recipients     the server waits for the message, and may refuse it
           Sent asked by Message-ID      found: done
           Drafts asked by Message-ID    found: an earlier attempt was begun; its outcome is unknown
           copy into Drafts              the mark that sending has begun
           SMTP, the message             certainly refused: the mark is removed again
           copy into Sent, mark removed

The mark comes last before the message, so that of all that may break off little leaves it unknown.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from imapclient.exceptions import IMAPClientError
from imapclient.imapclient import DRAFT, DRAFTS, SEEN, SENT

from bos_agentkit import AgentFailure
from bos_mail.failures import SEARCH_NOT_SUPPORTED, OutcomeUncertain, message_not_found, unavailable
from bos_mail.imap.smtp import announced, transmit
from bos_mail.mailbox import Folder, Sending, Sent
from bos_mail.reading import letter, listed, parsed
from bos_mail.search import imap_criteria

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from aiosmtplib import SMTP
    from imapclient import IMAPClient

    from bos_mail.imap.session import ImapSessions
    from bos_mail.mailbox import Letter, Listed, Outgoing
    from bos_mail.net import Connector, Endpoint
    from bos_mail.search import Query
    from bos_mail.settings import MailSettings

T = TypeVar("T")
_LISTED_BYTES: Final = 16 * 1024
"""Read of each message of a list, for headers and snippet."""
_ID: Final = re.compile(r"(inbox|sent|drafts)\.(\d{1,10})\.(\d{1,10})")
_SPECIAL: Final = {
    Folder.SENT: (SENT, "Sent"),
    Folder.DRAFTS: (DRAFTS, "Drafts"),
}
_ATTEMPT: Final = "X-Bos-Attempt"
"""Header of the mark that sending has begun; messages that are sent have none."""
_SEEN: Final = (SEEN,)
_DRAFT: Final = (SEEN, DRAFT)


@dataclass(eq=False)
class ImapMailbox:
    """A mailbox over IMAP and SMTP; implements :class:`bos_mail.mailbox.Mailbox`."""

    address: str
    user: str
    password: str = field(repr=False)
    imap: Endpoint
    smtp: Endpoint
    sessions: ImapSessions
    connector: Connector
    settings: MailSettings

    async def search(self, folder: Folder, query: Query, limit: int) -> Sequence[Listed]:
        """Messages that match, the newest first."""
        return await self._run(partial(_search, folder=folder, query=query, limit=limit))

    async def read(self, message: str) -> Letter:
        """One message."""
        found = _ID.fullmatch(message)
        if found is None:
            raise message_not_found()
        work = partial(
            _read,
            folder=Folder(found[1]),
            validity=int(found[2]),
            uid=int(found[3]),
            max_bytes=self.settings.max_message_bytes,
        )
        return letter(message, parsed(await self._run(work)), self.settings.max_body_chars)

    async def save_draft(self, outgoing: Outgoing) -> str:
        """Save a draft, unless it is there already; returns its id."""
        return await self._run(partial(_save_draft, outgoing=outgoing))

    async def send(self, outgoing: Outgoing) -> Sent:
        """Send a message exactly once.

        Raises:
            OutcomeUncertain: it was begun, and whether the server took it is not known.
        """
        async with AsyncExitStack() as stack:
            try:
                smtp = await stack.enter_async_context(self._announced(outgoing))
            except AgentFailure:
                # What an earlier attempt did is known also while nothing can be sent.
                state = await self._run(partial(_look, outgoing=outgoing))
                if state is Sending.NOT_BEGUN:
                    raise
                return _begun_before(state, outgoing)
            attempt = uuid4().hex
            try:
                state = await self._run(partial(_begin, outgoing=outgoing, attempt=attempt))
            except (AgentFailure, asyncio.CancelledError):
                await self._withdraw(attempt)
                raise
            if state is not Sending.NOT_BEGUN:
                return _begun_before(state, outgoing)
            handing_over = asyncio.create_task(self._handed_over(smtp, outgoing, attempt))
            try:
                return await asyncio.shield(handing_over)
            except asyncio.CancelledError:
                # The caller is gone, but the next attempt must find what became of this one.
                await asyncio.gather(handing_over, return_exceptions=True)
                raise
            finally:
                handing_over.cancel()

    async def _handed_over(self, smtp: SMTP, outgoing: Outgoing, attempt: str) -> Sent:
        """Hand the message over, and have the mailbox show it."""
        try:
            await transmit(smtp, outgoing)
        except AgentFailure:
            await self._withdraw(attempt)
            raise
        try:
            await self._run(partial(_finish, outgoing=outgoing))
        except AgentFailure:
            return Sent(outgoing.message_id, copy_in_sent=False)
        return Sent(outgoing.message_id)

    async def _withdraw(self, attempt: str) -> None:
        """Remove the mark of this attempt, which has certainly not sent the message.

        If it cannot be removed the next attempt is uncertain, which is safe.
        """
        with suppress(AgentFailure):
            await self._run(partial(_remove_mark, attempt=attempt))

    def _announced(self, outgoing: Outgoing) -> AbstractAsyncContextManager[SMTP]:
        return announced(
            self.connector,
            self.smtp,
            self.user,
            self.password,
            outgoing,
            command_timeout_s=self.settings.command_timeout_s,
        )

    async def _run(self, work: Callable[[IMAPClient], T]) -> T:
        return await self.sessions.run(self.imap, self.user, self.password, work)


def _search(client: IMAPClient, *, folder: Folder, query: Query, limit: int) -> list[Listed]:
    name = _folder(client, folder, create=False)
    if name is None:
        return []
    validity = int(client.select_folder(name, readonly=True)[b"UIDVALIDITY"])
    criteria = imap_criteria(query)
    ascii_only = all(str(each).isascii() for each in criteria)
    try:
        uids = client.search(criteria, None if ascii_only else "UTF-8")
    except IMAPClientError:
        raise AgentFailure(
            SEARCH_NOT_SUPPORTED, "The mail server cannot search for this. Ask in other words."
        ) from None
    newest = sorted(uids, reverse=True)[:limit]
    if not newest:
        return []
    fetched = client.fetch(newest, [f"BODY.PEEK[]<0.{_LISTED_BYTES}>"])
    return [
        listed(f"{folder}.{validity}.{uid}", parsed(_content(fetched[uid])))
        for uid in newest
        if uid in fetched
    ]


def _read(client: IMAPClient, *, folder: Folder, validity: int, uid: int, max_bytes: int) -> bytes:
    name = _folder(client, folder, create=False)
    if name is None or int(client.select_folder(name, readonly=True)[b"UIDVALIDITY"]) != validity:
        raise message_not_found()
    fetched = client.fetch([uid], [f"BODY.PEEK[]<0.{max_bytes}>"])
    if uid not in fetched:
        raise message_not_found()
    return _content(fetched[uid])


def _save_draft(client: IMAPClient, *, outgoing: Outgoing) -> str:
    name = _required(client, Folder.DRAFTS)
    uids, validity = _with_id(client, name, outgoing.message_id)
    if not uids:
        client.append(name, outgoing.content, _DRAFT)
        uids, validity = _with_id(client, name, outgoing.message_id)
    return f"{Folder.DRAFTS}.{validity}.{max(uids)}" if uids else ""


def _begun_before(state: Sending, outgoing: Outgoing) -> Sent:
    """Outcome of a message that an earlier attempt has begun to send.

    Raises:
        OutcomeUncertain: it is unknown.
    """
    if state is Sending.SENT:
        return Sent(outgoing.message_id, was_sent_before=True)
    raise OutcomeUncertain(
        "An earlier attempt has begun to send this message, and the mailbox does not show that it "
        "was sent. A copy is among the drafts."
    )


def _look(client: IMAPClient, *, outgoing: Outgoing) -> Sending:
    """State of earlier attempts to send a message, as the mailbox shows it."""
    sent, drafts = _required(client, Folder.SENT), _required(client, Folder.DRAFTS)
    if _with_id(client, sent, outgoing.message_id)[0]:
        _remove(client, drafts, _by_id(outgoing.message_id))
        return Sending.SENT
    begun = _with_id(client, drafts, outgoing.message_id)[0]
    return Sending.UNCERTAIN if begun else Sending.NOT_BEGUN


def _begin(client: IMAPClient, *, outgoing: Outgoing, attempt: str) -> Sending:
    """Leave the mark that sending has begun, unless the mailbox shows that it has before.

    Each attempt knows its own mark, so that it never removes that of another one.
    """
    if (state := _look(client, outgoing=outgoing)) is not Sending.NOT_BEGUN:
        return state
    drafts = _required(client, Folder.DRAFTS)
    client.append(drafts, f"{_ATTEMPT}: {attempt}\r\n".encode() + outgoing.content, _DRAFT)
    marks, _ = _with_id(client, drafts, outgoing.message_id)
    # Two marks: another attempt goes on at this moment. None: the server keeps none, so that
    # nothing would keep a later attempt from sending again.
    if not marks:
        raise unavailable("does not keep drafts, without which nothing is sent")
    return Sending.NOT_BEGUN if len(marks) == 1 else Sending.UNCERTAIN


def _remove_mark(client: IMAPClient, *, attempt: str) -> None:
    _remove(client, _required(client, Folder.DRAFTS), ["HEADER", _ATTEMPT, attempt])


def _finish(client: IMAPClient, *, outgoing: Outgoing) -> None:
    """Copy a message that was sent into Sent, unless the server has done so; remove the mark."""
    sent = _required(client, Folder.SENT)
    if not _with_id(client, sent, outgoing.message_id)[0]:
        client.append(sent, outgoing.content, _SEEN)
    _remove(client, _required(client, Folder.DRAFTS), _by_id(outgoing.message_id))


def _remove(client: IMAPClient, name: str, criteria: list[str]) -> None:
    client.select_folder(name)
    if uids := client.search(criteria):
        client.delete_messages(uids)
        # Without UIDPLUS this would take others that the user has marked as deleted along.
        if client.has_capability("UIDPLUS"):
            client.uid_expunge(uids)


def _with_id(client: IMAPClient, name: str, message_id: str) -> tuple[list[int], int]:
    """UIDs of the messages with this Message-ID that are not deleted, and the UIDVALIDITY."""
    validity = int(client.select_folder(name, readonly=True)[b"UIDVALIDITY"])
    return list(client.search([*_by_id(message_id), "UNDELETED"])), validity


def _by_id(message_id: str) -> list[str]:
    return ["HEADER", "Message-ID", message_id]


def _folder(client: IMAPClient, folder: Folder, *, create: bool) -> str | None:
    if folder is Folder.INBOX:
        return "INBOX"
    flag, usual = _SPECIAL[folder]
    found = client.find_special_folder(flag)
    if found is None and create:
        client.create_folder(usual)
        found = usual
    return None if found is None else str(found)


def _required(client: IMAPClient, folder: Folder) -> str:
    name = _folder(client, folder, create=True)
    assert name is not None
    return name


def _content(fetched: Any) -> bytes:
    for key, value in fetched.items():
        if key.startswith(b"BODY[]") and isinstance(value, bytes):
            return value
    return b""
