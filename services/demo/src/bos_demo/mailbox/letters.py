"""Mails of the sample mailbox: read from `mails.yaml`, written out as messages (RFC 5322)."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from email.message import EmailMessage
from email.utils import format_datetime, formataddr
from importlib.resources import files
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bos_demo.questions import read_yaml

OWNER = "vikram.chandran@nilgiriflow.example"
"""Address of the mailbox."""
_OWNER_NAME = "Vikram Chandran"
_INDIA = timezone(timedelta(hours=5, minutes=30))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Attached(_Strict):
    """A text file that a mail brings."""

    name: str
    text: str


class Letter(_Strict):
    """A mail of the sample mailbox."""

    id: str
    folder: Literal["INBOX", "Sent", "Drafts"] = "INBOX"
    days_ago: int = Field(ge=0)
    at: time
    sender: str = Field(default="", alias="from")
    """Empty: the owner."""
    to: str = ""
    """Empty: the owner."""
    subject: str
    answers: str = ""
    """The mail of the same thread that it follows."""
    flags: tuple[Literal["seen", "draft"], ...] = ()
    body: str = ""
    html: str = ""
    """Instead of a plain body."""
    attachment: Attached | None = None

    @model_validator(mode="after")
    def _has_one_body(self) -> Self:
        if bool(self.body) == bool(self.html):
            raise ValueError("give either body or html")
        return self

    @property
    def message_id(self) -> str:
        """Message-ID, the same at every start."""
        return f"<{self.id}@nilgiriflow.example>"

    def written(self, today: date) -> datetime:
        """When it was written."""
        return datetime.combine(today - timedelta(days=self.days_ago), self.at, _INDIA)


def load_letters() -> tuple[Letter, ...]:
    """All mails, the oldest first."""
    text = (files("bos_demo") / "mailbox" / "mails.yaml").read_text(encoding="utf-8")
    found = [Letter.model_validate(each) for each in read_yaml(text)]
    return tuple(sorted(found, key=lambda each: (-each.days_ago, each.at)))


def message_of(letter: Letter, thread: tuple[str, ...], today: date) -> bytes:
    """The mail as a message.

    Args:
        letter: The mail.
        thread: Message-IDs of its thread before it, the oldest first.
        today: The company's today.
    """
    owner = formataddr((_OWNER_NAME, OWNER))
    message = EmailMessage()
    message["Message-ID"] = letter.message_id
    message["Date"] = format_datetime(letter.written(today))
    message["From"] = letter.sender or owner
    message["To"] = letter.to or owner
    message["Subject"] = letter.subject
    if thread:
        message["In-Reply-To"] = thread[-1]
        message["References"] = " ".join(thread)
    if letter.html:
        message.set_content(letter.html, subtype="html")
    else:
        message.set_content(letter.body)
    if letter.attachment is not None:
        message.add_attachment(letter.attachment.text, filename=letter.attachment.name)
    return message.as_bytes().replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def thread_before(letter: Letter, letters: tuple[Letter, ...]) -> tuple[str, ...]:
    """Message-IDs of the mails that a mail follows, the oldest first."""
    by_id = {each.id: each for each in letters}
    found: list[str] = []
    while letter.answers:
        letter = by_id[letter.answers]
        found.append(letter.message_id)
    return tuple(reversed(found))
