"""E-mail: headers and text are the first page, attachments of a supported kind the next ones."""

from __future__ import annotations

import email
from dataclasses import replace
from email import policy
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from bos_documents.parsing.blocks import DocumentInfo, Page
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import EML
from bos_documents.parsing.formats.html import html_blocks
from bos_documents.parsing.formats.plain import notes_of, text_blocks
from bos_documents.parsing.formats.source import page_of
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import one_line, title_of
from bos_encodings.mail import header_text, part_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from email.message import EmailMessage

    from bos_documents.parsing.blocks import Block
    from bos_documents.parsing.formats.source import Source
    from bos_documents.parsing.limits import ParsingLimits

_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_MAX_PARTS = 500


class Mail:
    """An e-mail with what is attached to it, one level deep."""

    def __init__(
        self, data: bytes, limits: ParsingLimits, open_part: Callable[[bytes, str], Source]
    ) -> None:
        self._limits = limits
        self._attached: list[tuple[str, Source]] = []
        notes: list[str] = []
        try:
            message: EmailMessage = email.message_from_bytes(data, policy=policy.default)
            parts = list(self._parts(message))
        except (ValueError, LookupError, IndexError, AttributeError, RecursionError) as error:
            raise DocumentRejected("DOCUMENT_DAMAGED") from error
        self._blocks = Blocks(limits)
        lines = [f"{name}: {value}" for name in _SHOWN if (value := _header(message, name))]
        self._blocks.paragraph("\n".join(lines))
        body = self._body(parts, notes)
        self._first = page_of(1, (*self._blocks.done, *body))
        pages = 1
        for part in parts:
            name = _name(part)
            if not name:
                continue
            try:
                if len(self._attached) >= limits.attachments:
                    raise DocumentRejected("DOCUMENT_TOO_LARGE", "There are too many attachments.")
                source = open_part(_content(part), name)
            except DocumentRejected as error:
                notes.append(f"Attachment left out: {name}. {error.message}")
                continue
            pages += source.info.page_count
            if pages > limits.pages:
                raise DocumentRejected("DOCUMENT_TOO_MANY_PAGES")
            self._attached.append((name, source))
            notes += [f"{name}: {note}" for note in source.info.notes]
        self.info = DocumentInfo(
            EML, pages, title_of(_header(message, "Subject")), _date(message), tuple(notes)
        )

    def page(self, number: int) -> Page:
        """The mail itself, or a page of an attachment."""
        if number == 1:
            return self._first
        place = number - 1
        for name, source in self._attached:
            if place <= source.info.page_count:
                page = source.page(place)
                title = f"{name}: {page.title}" if page.title else name
                return replace(page, number=number, title=title_of(title))
            place -= source.info.page_count
        raise IndexError(number)

    def _parts(self, message: EmailMessage) -> list[EmailMessage]:
        """Parts that hold content; a mail in the mail is one of them, and is not entered."""
        found: list[EmailMessage] = []
        waiting: list[EmailMessage] = [message]
        while waiting:
            part = waiting.pop()
            if part.get_content_maintype() == "multipart" and part.is_multipart():
                waiting.extend(reversed(part.get_payload()))  # type: ignore[arg-type]
            else:
                found.append(part)
            if len(found) + len(waiting) > _MAX_PARTS:
                raise DocumentRejected("DOCUMENT_TOO_COMPLEX", "The mail has too many parts.")
        return found

    def _body(self, parts: list[EmailMessage], notes: list[str]) -> list[Block]:
        texts = [part for part in parts if not _name(part)]
        for wanted in ("text/plain", "text/html"):
            found: list[Block] = []
            for part in texts:
                if part.get_content_type() != wanted:
                    continue
                reading = part_text(part)
                text = reading.text
                notes += notes_of(reading)
                if wanted == "text/plain":
                    found += text_blocks(text, self._limits).done
                else:
                    blocks, hidden = html_blocks(text, self._limits)
                    found += blocks
                    notes += ["Hidden parts of the mail are left out."] if hidden else []
            if found:
                return found
        return []


def _name(part: EmailMessage) -> str:
    """File name of an attachment, without folders; empty if the part is text of the mail."""
    kind = part.get_content_type()
    if kind == "message/rfc822":
        return _file_name(part) or "attached mail"
    if part.get_content_disposition() == "attachment" or _file_name(part):
        return _file_name(part) or "attachment"
    return "" if kind in ("text/plain", "text/html") else "attachment"


def _file_name(part: EmailMessage) -> str:
    try:
        name = part.get_filename() or ""
    except (ValueError, LookupError, IndexError, AttributeError):
        return ""
    return one_line(name.replace("\\", "/").rsplit("/", 1)[-1])[:200]


def _content(part: EmailMessage) -> bytes:
    if part.get_content_maintype() == "message":
        raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED", "Mails within mails are not read.")
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _header(message: EmailMessage, name: str) -> str:
    return one_line(header_text(message, name))[:2000]


def _date(message: EmailMessage) -> str:
    try:
        return parsedate_to_datetime(_header(message, "Date")).date().isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return ""
