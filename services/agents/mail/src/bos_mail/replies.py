"""Schemas of the model's structured replies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

ActionName = Literal[
    "search_inbox", "search_sent", "search_drafts", "read", "send", "draft", "reply"
]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


# A validator and no minLength: not every endpoint supports that keyword in a strict schema.
Text = Annotated[str, AfterValidator(_not_blank)]


class MailAction(BaseModel):
    """The one thing to do with the mailbox."""

    action: ActionName = Field(description="Exactly one action")
    query: str = Field(
        default="",
        description="For searches, read and reply: which message, in the search syntax; empty: "
        "the newest",
    )
    message_id: str = Field(default="", description="For read and reply: id of a message, if known")
    to: list[str] = Field(default_factory=list, description="For send and draft: addresses")
    cc: list[str] = Field(default_factory=list, description="Addresses of copies, if asked for")
    bcc: list[str] = Field(default_factory=list, description="Blind copies, if asked for")


class MailText(BaseModel):
    """The words of a message."""

    subject: Text = Field(description="The subject, one line")
    body: Text = Field(description="Greeting, body and sign-off, as plain text")


class MailWithFiles(MailText):
    """The words of a message, and the files that go with it."""

    attachments: list[str] = Field(
        default_factory=list,
        description="Files to attach, named as listed; none that the task does not ask for",
    )


class MailSummary(BaseModel):
    """What was done, in words."""

    result: Text = Field(description="What was found or done, in the language of the question")
