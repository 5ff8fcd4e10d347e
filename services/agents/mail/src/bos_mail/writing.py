"""Messages to be sent: recipients parsed strictly, headers that cannot be forged. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from email import policy
from email.errors import MessageError
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from bos_errors import InvalidArgument
from bos_http import HttpRefused
from bos_http.url import canonical_host
from bos_mail.mailbox import Outgoing
from bos_mail.reading import seen

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bos_agentkit import InputFiles

MAX_SUBJECT_CHARS: Final = 300
MAX_ATTACHMENTS: Final = 8
MAX_ATTACHMENT_CHARS: Final = 64 * 1024
"""Of all attachments of a message together: a request for approval must have room for them."""
_MAX_ADDRESS_CHARS: Final = 254
_LOCAL: Final = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}")
_REFERENCE: Final = re.compile(r"<[!-~]{1,250}>")
_TURNING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# No multipart and no message: these are not one part.
_MEDIA_TYPE: Final = re.compile(r"(application|audio|font|image|text|video)/[a-z0-9.+-]{1,80}")
_FILE_NAME: Final = re.compile(r"[^\\/\x00-\x1f\x7f]{1,120}")
_registry = HeaderRegistry()


class GivenAttachment(BaseModel):
    """An attachment as a plan gives it: the text of a file, or a file that an earlier step made."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    content: Annotated[str, Field(max_length=MAX_ATTACHMENT_CHARS)] | None = None
    """The text; None: a file of an earlier step is meant."""
    step: str = ""
    """The step that made the file, where several made one of that name."""
    digest: str = ""
    """Of the file, as a reference to the files of a step gives it."""
    media_type: str = ""
    """Not used: that of the file itself counts."""
    size_bytes: int = 0
    """Likewise."""


class Attachment(BaseModel):
    """An attachment as its approver sees it; a file of a step is fixed by its digest."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=120)]
    content: Annotated[str, Field(max_length=MAX_ATTACHMENT_CHARS)] = ""
    """The text of the file; empty for a file of a step."""
    media_type: str = ""
    size_bytes: int = 0
    sha256: str = ""
    step: str = ""
    """The step that made the file; empty for a text."""


@dataclass(frozen=True, slots=True)
class Part:
    """An attachment as it is sent."""

    name: str
    media_type: str
    content: bytes


def address(text: str, field: str) -> str:
    """The one mail address that ``text`` is, its domain in ASCII; a display name is dropped.

    Raises:
        InvalidArgument: it is none, or several.
    """
    problem = f"{seen(text)[:80]!r} is not one mail address such as ada@example.com"
    if not text.isprintable() or len(text) > 2 * _MAX_ADDRESS_CHARS:
        raise InvalidArgument.field(field, problem)
    try:
        header: Any = _registry("to", text)
        found = header.addresses
    except (ValueError, IndexError, AttributeError, MessageError):
        raise InvalidArgument.field(field, problem) from None
    if len(found) != 1 or header.defects or any(group.display_name for group in header.groups):
        raise InvalidArgument.field(field, problem)
    local, domain = found[0].username, found[0].domain
    if not _LOCAL.fullmatch(local) or local.startswith(".") or local.endswith("."):
        raise InvalidArgument.field(field, problem)
    if ".." in local or "." not in domain:
        raise InvalidArgument.field(field, problem)
    try:
        host = canonical_host(domain)
    except HttpRefused:
        raise InvalidArgument.field(field, problem) from None
    if host.startswith("[") or host.replace(".", "").isdigit():
        raise InvalidArgument.field(field, problem)
    return f"{local}@{host}"


def recipients(
    to: Sequence[str], cc: Sequence[str], bcc: Sequence[str], *, most: int, domains: Sequence[str]
) -> tuple[list[str], list[str], list[str]]:
    """The addresses of all recipients, none twice.

    Raises:
        InvalidArgument: one is none, there are none or too many, or one is of a domain that the
            operator does not allow.
    """
    given: set[str] = set()
    lists: list[list[str]] = []
    for field, texts in (("to", to), ("cc", cc), ("bcc", bcc)):
        found = []
        for text in texts:
            each = address(text, field)
            if domains and each.rpartition("@")[2] not in domains:
                raise InvalidArgument.field(
                    field, f"{each} is of a domain that mail may not be sent to here"
                )
            if each.lower() not in given:
                given.add(each.lower())
                found.append(each)
        lists.append(found)
    if not lists[0]:
        raise InvalidArgument.field("to", "must name at least one recipient")
    if len(given) > most:
        raise InvalidArgument.field("to", f"with copies there may be {most} recipients at most")
    return lists[0], lists[1], lists[2]


def subject_line(text: str) -> str:
    """A subject on one line.

    Raises:
        InvalidArgument: it holds control, invisible or direction-turning characters, or is long.
    """
    if not text.isprintable() or seen(text) != " ".join(text.split()):
        raise InvalidArgument.field("subject", "must be one line without invisible characters")
    if len(text) > MAX_SUBJECT_CHARS:
        raise InvalidArgument.field("subject", f"may have {MAX_SUBJECT_CHARS} characters")
    return text.strip()


def body_of(text: str, most: int) -> str:
    """A body with plain line ends.

    Raises:
        InvalidArgument: it is empty, too long, or holds control or direction-turning characters.
    """
    plain = text.replace("\r\n", "\n").strip()
    if not plain:
        raise InvalidArgument.field("body", "must not be empty")
    if len(plain) > most:
        raise InvalidArgument.field("body", f"may have {most} characters")
    if _CONTROL.search(plain) or _TURNING.search(plain):
        raise InvalidArgument.field(
            "body", "must hold no control characters, nor such as turn the direction of writing"
        )
    return plain


def described(given: Sequence[GivenAttachment], files: InputFiles) -> list[Attachment]:
    """Attachments with media type, size and digest, as approvers see them; none twice.

    Raises:
        InvalidArgument: there are too many, a name is not one of a file, or no earlier step made
            such a file.
    """
    if len(given) > MAX_ATTACHMENTS:
        raise InvalidArgument.field("attachments", f"may be {MAX_ATTACHMENTS} at most")
    if sum(len(each.content or "") for each in given) > MAX_ATTACHMENT_CHARS:
        raise InvalidArgument.field("attachments", f"may have {MAX_ATTACHMENT_CHARS} characters")
    found: list[Attachment] = []
    for each in given:
        shown = _file_of_step(each, files) if each.content is None else _text_file(each)
        if shown not in found:
            found.append(shown)
    return found


def parts(shown: Sequence[Attachment], files: InputFiles) -> list[Part]:
    """What is sent of attachments: exactly the content that was shown.

    Raises:
        InvalidArgument: a file is not there, or is not the one that was shown.
    """
    return [_part(each, files) for each in shown]


def _text_file(given: GivenAttachment) -> Attachment:
    name, text = _file_name(given.name.strip()), given.content or ""
    content = text.encode()
    return Attachment(
        name=name,
        content=text,
        media_type="text/csv" if name.lower().endswith(".csv") else "text/plain",
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def _file_of_step(given: GivenAttachment, files: InputFiles) -> Attachment:
    step, name = given.step, given.name
    if not step and "/" in name:
        step, _, name = name.partition("/")
    file = files.find(name, step=step, digest=given.digest, field="attachments")
    return Attachment(
        name=_file_name(file.name),
        media_type=_media_type(file.media_type),
        size_bytes=len(file.content),
        sha256=file.digest.removeprefix("sha256:"),
        step=file.step_id,
    )


def _part(shown: Attachment, files: InputFiles) -> Part:
    if not shown.step:
        text = _text_file(GivenAttachment(name=shown.name, content=shown.content))
        if text.sha256 != shown.sha256:
            raise _changed(shown)
        return Part(text.name, text.media_type, text.content.encode())
    if shown.content:
        raise InvalidArgument.field("attachments", "a file of a step has no text beside it")
    same = [
        file
        for file in files
        if (file.name, file.step_id, file.digest)
        == (shown.name, shown.step, f"sha256:{shown.sha256}")
    ]
    if not same:
        raise _changed(shown)
    return Part(_file_name(shown.name), _media_type(same[0].media_type), same[0].content)


def _changed(shown: Attachment) -> InvalidArgument:
    return InvalidArgument.field(
        "attachments",
        f"{shown.name} is not the file that was shown, so nothing was sent; ask again",
    )


def _file_name(name: str) -> str:
    if not _FILE_NAME.fullmatch(name) or seen(name) != name or name in (".", ".."):
        raise InvalidArgument.field("attachments", "each needs the name of a file, no folder")
    return name


def _media_type(declared: str) -> str:
    """A media type that a single part may have."""
    fit = _MEDIA_TYPE.fullmatch(declared)
    return declared if fit else "application/octet-stream"


def references(texts: Sequence[str]) -> list[str]:
    """Message ids of a thread, the oldest first.

    Raises:
        InvalidArgument: one is none.
    """
    if not all(_REFERENCE.fullmatch(text) for text in texts):
        raise InvalidArgument.field("references", "must be message ids such as <a@b>")
    return list(texts)[-20:]


def message_id(key: str, sender: str) -> str:
    """Message-ID of ``key``, the same for every attempt."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"<bos.{digest}@{sender.rpartition('@')[2]}>"


def built(
    *,
    id: str,
    sender: str,
    to: Sequence[str],
    cc: Sequence[str],
    bcc: Sequence[str],
    subject: str,
    body: str,
    attachments: Sequence[Part],
    when: datetime,
    in_reply_to: str = "",
    thread: Sequence[str] = (),
    thread_of: str = "",
    keep_bcc: bool = False,
) -> Outgoing:
    """The message as bytes. Blind copies are in the envelope alone, unless it is a draft."""
    message = EmailMessage(policy=policy.SMTP)
    message["From"], message["To"] = sender, ", ".join(to)
    if cc:
        message["Cc"] = ", ".join(cc)
    if bcc and keep_bcc:
        message["Bcc"] = ", ".join(bcc)
    message["Subject"] = subject
    message["Date"] = format_datetime(when)
    message["Message-ID"] = id
    if in_reply_to:
        message["In-Reply-To"] = in_reply_to
        message["References"] = " ".join([*thread, in_reply_to])
    message.set_content(body + "\n", charset="utf-8")
    for each in attachments:
        kind, _, subtype = each.media_type.partition("/")
        params = {"charset": "utf-8"} if kind == "text" and _is_utf8(each.content) else {}
        message.add_attachment(
            each.content, maintype=kind, subtype=subtype, filename=each.name, params=params
        )
    envelope = tuple(dict.fromkeys((*to, *cc, *bcc)))
    return Outgoing(id, message.as_bytes(), sender, envelope, thread_of)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
