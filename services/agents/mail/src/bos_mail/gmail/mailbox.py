"""Gmail mailbox over its REST API (developers.google.com/workspace/gmail/api/reference/rest).

A message is sent as a draft that is sent: Gmail removes the draft in the moment that it sends it,
so a draft that is there was certainly not sent. A second draft marks that sending was begun: where
the mark is there, the draft gone, and the message not among those sent, the outcome is unknown.
"""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from dataclasses import dataclass, field
from email import policy
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from bos_agentkit import AgentFailure
from bos_errors import BosError
from bos_mail.failures import (
    SERVER_REFUSED,
    OutcomeUncertain,
    message_not_found,
    sign_in_refused,
    unavailable,
    unusable,
)
from bos_mail.mailbox import Folder, Outgoing, Sent
from bos_mail.reading import letter, listed, parsed
from bos_mail.search import gmail_query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bos_http import HttpClient, HttpResponse
    from bos_mail.mailbox import Letter, Listed
    from bos_mail.search import Query
    from bos_mail.settings import MailSettings

_JSON: Final = ("application/json",)
_FOLDERS: Final = {Folder.INBOX: "in:inbox", Folder.SENT: "in:sent", Folder.DRAFTS: "in:drafts"}
_CREDENTIALS: Final = ("client_id", "client_secret", "refresh_token")


def gmail_credentials(secret: str) -> Mapping[str, str]:
    """Client id, client secret and refresh token of a connection.

    Raises:
        AgentFailure: one of them is missing.
    """
    try:
        found = json.loads(secret)
        given = {name: found[name] for name in _CREDENTIALS}
    except (ValueError, KeyError, TypeError, RecursionError):
        given = {}
    if not given or not all(isinstance(each, str) and each for each in given.values()):
        raise unusable(f"its token file lacks {', '.join(_CREDENTIALS)}")
    return given


@dataclass(eq=False)
class GmailMailbox:
    """A mailbox over the Gmail API; implements :class:`bos_mail.mailbox.Mailbox`."""

    address: str
    credentials: Mapping[str, str] = field(repr=False)
    http: HttpClient
    settings: MailSettings
    _token: str = field(default="", repr=False)

    async def search(self, folder: Folder, query: Query, limit: int) -> Sequence[Listed]:
        """Messages that match, the newest first."""
        asked = f"{_FOLDERS[folder]} {gmail_query(query)}".strip()
        found = await self._found(asked, limit)
        return [listed(id, parsed(await self._raw(id))) for id in found]

    async def read(self, message: str) -> Letter:
        """One message."""
        if not message.isascii() or not message.isalnum() or len(message) > 64:
            raise message_not_found()
        content = parsed(await self._raw(message))
        return letter(message, content, self.settings.max_body_chars)

    async def save_draft(self, outgoing: Outgoing) -> str:
        """Save a draft, unless it is there already; returns the id of its message."""
        found = await self._found(_by_id("in:drafts", outgoing), 1)
        if found:
            return found[0]
        return str((await self._draft(outgoing)).get("message", {}).get("id", ""))

    async def send(self, outgoing: Outgoing) -> Sent:
        """Send a message exactly once.

        Raises:
            OutcomeUncertain: Gmail did not answer whether it sent it.
        """
        mark = _mark_of(outgoing)
        if await self._found(_by_id("in:sent", outgoing), 1):
            await self._remove(await self._draft_of(mark))
            return Sent(outgoing.message_id, was_sent_before=True)
        draft, marked = await self._draft_of(outgoing), await self._draft_of(mark)
        if marked and not draft:
            raise OutcomeUncertain(
                "An earlier attempt has begun to send this message, and Gmail does not show that "
                "it was sent."
            )
        marked = marked or str((await self._draft(mark)).get("id", ""))
        draft = draft or str((await self._draft(outgoing)).get("id", ""))
        if not draft or not marked:
            raise unavailable("did not keep the message before it was to be sent")
        await self._send_draft(draft)
        with suppress(AgentFailure):
            await self._remove(marked)
        return Sent(outgoing.message_id)

    async def _send_draft(self, draft: str) -> None:
        try:
            status, _ = await self._call("POST", "drafts/send", body={"id": draft})
        except AgentFailure as error:
            if not error.retryable:
                raise
            raise OutcomeUncertain("Gmail did not answer whether it sent the message.") from None
        if status == 404 or status >= 500:
            raise OutcomeUncertain("Gmail did not say whether it sent the message.")
        if status >= 400:
            raise _refused(status)

    async def _remove(self, draft: str) -> None:
        if draft:
            await self._call("DELETE", f"drafts/{quote(draft, safe='')}")

    async def _draft(self, outgoing: Outgoing) -> dict[str, Any]:
        message: dict[str, Any] = {"raw": base64.urlsafe_b64encode(outgoing.content).decode()}
        if outgoing.thread_of:
            original = await self._json(
                "GET", f"messages/{quote(outgoing.thread_of, safe='')}?format=minimal"
            )
            if isinstance(original.get("threadId"), str):
                message["threadId"] = original["threadId"]
        return await self._json("POST", "drafts", body={"message": message})

    async def _draft_of(self, outgoing: Outgoing) -> str:
        """The id of the draft with this Message-ID; empty if there is none."""
        query = urlencode({"q": f"rfc822msgid:{outgoing.message_id.strip('<>')}", "maxResults": 2})
        found = await self._json("GET", f"drafts?{query}")
        drafts = found.get("drafts", [])
        return str(drafts[0]["id"]) if drafts else ""

    async def _found(self, query: str, limit: int) -> list[str]:
        asked = urlencode({"q": query, "maxResults": limit})
        found = await self._json("GET", f"messages?{asked}")
        return [str(each["id"]) for each in found.get("messages", [])][:limit]

    async def _raw(self, id: str) -> bytes:
        found = await self._json("GET", f"messages/{quote(id)}?format=raw")
        raw = str(found.get("raw", ""))
        if len(raw) > self.settings.max_message_bytes * 4 // 3 + 4:
            raw = raw[: self.settings.max_message_bytes // 3 * 4]
        try:
            return base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4))
        except ValueError:
            raise unavailable("answered what cannot be read") from None

    async def _json(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """A call that must succeed."""
        status, found = await self._call(method, path, body=body)
        if status == 404:
            raise message_not_found()
        if status == 429 or status >= 500:
            raise unavailable(f"is overloaded or fails (status {status})")
        if status >= 400:
            raise _refused(status)
        return found

    async def _call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        token = await self._access_token()
        url = f"{self.settings.gmail_api_url.rstrip('/')}/gmail/v1/users/me/{path}"
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        response = await self._sent(method, url, headers, content)
        if response.status == 401:
            raise sign_in_refused()
        return response.status, _object(response)

    async def _access_token(self) -> str:
        """An access token for the refresh token (RFC 6749, section 6)."""
        if not self._token:
            form = urlencode({**self.credentials, "grant_type": "refresh_token"}).encode()
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            response = await self._sent("POST", self.settings.gmail_token_url, headers, form)
            found = _object(response).get("access_token")
            if response.status >= 500:
                raise unavailable("fails to renew the sign-in")
            if response.status >= 400 or not isinstance(found, str):
                raise sign_in_refused()
            self._token = found
        return self._token

    async def _sent(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None
    ) -> HttpResponse:
        try:
            return await self.http.request(
                method,
                url,
                headers=headers,
                body=content,
                timeout_s=self.settings.operation_timeout_s,
                content_types=_JSON,
            )
        except BosError:
            raise unavailable("cannot be reached") from None


def _mark_of(outgoing: Outgoing) -> Outgoing:
    """A draft that is there from before a message is sent until that is certain."""
    id = outgoing.message_id.replace("<bos.", "<bos-mark.")
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = message["To"] = outgoing.sender
    message["Subject"], message["Message-ID"] = "Sending in progress", id
    message.set_content("A message is being sent by Bos. This draft disappears when it was.\n")
    return Outgoing(id, message.as_bytes(), outgoing.sender, (outgoing.sender,))


def _by_id(folder: str, outgoing: Outgoing) -> str:
    return f"{folder} rfc822msgid:{outgoing.message_id.strip('<>')}"


def _object(response: HttpResponse) -> dict[str, Any]:
    try:
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _refused(status: int) -> AgentFailure:
    return AgentFailure(
        SERVER_REFUSED, f"Gmail does not accept the request (status {status}); nothing was sent."
    )
