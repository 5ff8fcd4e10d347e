"""Mailbox port, for any protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from bos_mail.search import Query


class Folder(StrEnum):
    """Folders that are searched."""

    INBOX = "inbox"
    SENT = "sent"
    DRAFTS = "drafts"


class Sending(StrEnum):
    """State of sending a message, as the mailbox records it."""

    NOT_BEGUN = "not_begun"
    """Nothing was handed to the server: it may be sent."""
    UNCERTAIN = "uncertain"
    """It was begun; whether the server took the message is not known."""
    SENT = "sent"


@dataclass(frozen=True, slots=True)
class Listed:
    """A message in a list."""

    id: str
    """Of this mailbox; what :meth:`Mailbox.read` takes."""
    sender: str
    subject: str
    date: str
    snippet: str

    def as_data(self) -> dict[str, Any]:
        """Fields of the step's data."""
        return {
            "id": self.id,
            "from": self.sender,
            "subject": self.subject,
            "date": self.date,
            "snippet": self.snippet,
        }


@dataclass(frozen=True, slots=True)
class Letter:
    """A message with its text."""

    id: str
    sender: str
    reply_to: str
    to: tuple[str, ...]
    cc: tuple[str, ...]
    subject: str
    date: str
    body: str
    is_cut: bool
    """Whether the text is longer than what was read."""
    attachments: tuple[tuple[str, str, int], ...]
    """Name, media type and bytes of each."""
    message_id: str
    references: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What is in doubt of how the text was decoded."""

    def as_data(self) -> dict[str, Any]:
        """Fields of the step's data."""
        return {
            "id": self.id,
            "from": self.sender,
            "to": list(self.to),
            "cc": list(self.cc),
            "subject": self.subject,
            "date": self.date,
            "body": self.body,
            "is_cut": self.is_cut,
            "attachments": [
                {"name": name, "media_type": kind, "size_bytes": size}
                for name, kind, size in self.attachments
            ],
            "message_id": self.message_id,
            **({"notes": list(self.notes)} if self.notes else {}),
        }


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A whole message on its way, as bytes."""

    message_id: str
    """With angle brackets; the same for every attempt at the same sending."""
    content: bytes
    sender: str
    recipients: tuple[str, ...]
    """Of the envelope, blind copies included."""
    thread_of: str = ""
    """Id of the message that it replies to."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent, or had been sent before."""

    message_id: str
    was_sent_before: bool = False
    copy_in_sent: bool = True


class Mailbox(Protocol):
    """A user's mailbox; every call is bounded in time and size.

    Raises of all methods:
        AgentFailure: the server cannot be reached, refuses, or has no such message.
    """

    address: str
    """Sender address of mail from it."""

    async def search(self, folder: Folder, query: Query, limit: int) -> Sequence[Listed]:
        """Messages that match, the newest first."""

    async def read(self, message: str) -> Letter:
        """One message."""

    async def save_draft(self, outgoing: Outgoing) -> str:
        """Save a draft, unless it is there already; returns its id."""

    async def send(self, outgoing: Outgoing) -> Sent:
        """Send a message exactly once: the mailbox itself is asked before whether it was.

        Raises:
            OutcomeUncertain: an earlier attempt, or this one, handed it to the server, and whether
                the server took it is not known.
        """
