"""Messages of others to text: headers decoded, bodies as plain text, both bounded. Pure."""

from __future__ import annotations

import email
import re
import unicodedata
from email import policy
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from selectolax.lexbor import LexborHTMLParser

from bos_mail.mailbox import Letter, Listed

if TYPE_CHECKING:
    from email.message import EmailMessage

_MAX_HEADER_CHARS: Final = 500
_MAX_LISTED: Final = 50
_SNIPPET_CHARS: Final = 200
_REFERENCE: Final = re.compile(r"<[^<>\s]{1,250}>")
# Texts that turn the direction of writing, and characters that are not seen.
_UNSEEN: Final = frozenset({"Cf", "Cc", "Co", "Cn", "Cs", "Zl", "Zp"})
_BLANK: Final = re.compile(r"[ \t]+")
_MANY_LINES: Final = re.compile(r"\n{3,}")


def parsed(content: bytes) -> EmailMessage:
    """The message; damaged ones as far as they go."""
    return email.message_from_bytes(content, policy=policy.default)


def listed(id: str, message: EmailMessage) -> Listed:
    """A message as lists show it."""
    body, _ = body_text(message, _SNIPPET_CHARS * 4)
    return Listed(
        id=id,
        sender=header(message, "From"),
        subject=header(message, "Subject"),
        date=_date(message),
        snippet=" ".join(body.split())[:_SNIPPET_CHARS],
    )


def letter(id: str, message: EmailMessage, max_chars: int) -> Letter:
    """A message with its text, of at most ``max_chars`` characters."""
    body, is_cut = body_text(message, max_chars)
    return Letter(
        id=id,
        sender=header(message, "From"),
        reply_to=header(message, "Reply-To"),
        to=_addresses(message, "To"),
        cc=_addresses(message, "Cc"),
        subject=header(message, "Subject"),
        date=_date(message),
        body=body,
        is_cut=is_cut,
        attachments=_attachments(message),
        message_id=next(iter(_REFERENCE.findall(_raw(message, "Message-ID"))), ""),
        references=tuple(_REFERENCE.findall(_raw(message, "References"))[-_MAX_LISTED:]),
    )


def header(message: EmailMessage, name: str) -> str:
    """A header on one line, without characters that are not seen."""
    return seen(_raw(message, name))[:_MAX_HEADER_CHARS]


def seen(text: str) -> str:
    """``text`` on one line, without control, invisible and direction-turning characters."""
    visible = (" " if c.isspace() or unicodedata.category(c) in _UNSEEN else c for c in text)
    return " ".join("".join(visible).split())


def body_text(message: EmailMessage, max_chars: int) -> tuple[str, bool]:
    """The text of a message, plain preferred, and whether there is more of it."""
    try:
        part = message.get_body(preferencelist=("plain", "html"))
        content = part.get_content() if part is not None else ""
    except (LookupError, ValueError, AttributeError, KeyError, TypeError):
        part, content = None, ""  # a character set that there is not, a damaged structure
    if not isinstance(content, str):
        content = ""
    if part is not None and part.get_content_subtype() == "html":
        content = html_text(content)
    lines = (_BLANK.sub(" ", _visible_line(line)).strip() for line in content.splitlines())
    text = _MANY_LINES.sub("\n\n", "\n".join(lines)).strip()
    return text[:max_chars], len(text) > max_chars


def html_text(content: str) -> str:
    """Visible text of an HTML message: no styles, no scripts, no hidden parts."""
    tree = LexborHTMLParser(content)
    for node in tree.css("script, style, head, template, [hidden], [style*='display:none']"):
        node.decompose()
    root = tree.body or tree.root
    return "" if root is None else root.text(separator="\n")


def _visible_line(line: str) -> str:
    return "".join(" " if c == "\t" or unicodedata.category(c) in _UNSEEN else c for c in line)


def _raw(message: EmailMessage, name: str) -> str:
    try:
        return str(message[name] or "")
    except (LookupError, ValueError, AttributeError, IndexError, TypeError):
        return ""  # headers of others can make the parser fail


def _addresses(message: EmailMessage, name: str) -> tuple[str, ...]:
    try:
        found = message[name].addresses if message[name] is not None else ()
        return tuple(seen(str(each)) for each in found[:_MAX_LISTED])
    except (LookupError, ValueError, AttributeError, IndexError, TypeError):
        return ()


def _date(message: EmailMessage) -> str:
    try:
        return parsedate_to_datetime(_raw(message, "Date")).isoformat()
    except (ValueError, TypeError, OverflowError):
        return ""


def _attachments(message: EmailMessage) -> tuple[tuple[str, str, int], ...]:
    found = []
    try:
        for part in message.iter_attachments():
            content = part.get_payload(decode=True)
            size = len(content) if isinstance(content, bytes) else 0
            found.append((seen(part.get_filename() or "")[:200], part.get_content_type(), size))
            if len(found) == _MAX_LISTED:
                break
    except (LookupError, ValueError, AttributeError, TypeError, KeyError):
        pass  # a damaged structure: what was found so far
    return tuple(found)
