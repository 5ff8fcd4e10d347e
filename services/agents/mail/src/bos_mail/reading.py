"""Messages of others to text: headers decoded, bodies as plain text, both bounded. Pure."""

from __future__ import annotations

import email
import re
import unicodedata
from email import policy
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from selectolax.lexbor import LexborHTMLParser

from bos_encodings.mail import header_text, part_text
from bos_mail.mailbox import Letter, Listed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import EmailMessage

_MAX_HEADER_CHARS: Final = 500
_MAX_LISTED: Final = 50
_SNIPPET_CHARS: Final = 200
_REFERENCE: Final = re.compile(r"<[^<>\s]{1,250}>")
# Texts that turn the direction of writing, and characters that are not seen.
_UNSEEN: Final = frozenset({"Cf", "Cc", "Co", "Cn", "Cs", "Zl", "Zp"})
_BLANK: Final = re.compile(r"[ \t]+")
_MANY_LINES: Final = re.compile(r"\n{3,}")
_UUENCODED: Final = re.compile(
    r"^begin [0-7]{3,4} (?P<name>[^\n]{1,200})\n(?P<lines>(?:[ -`]{1,62}\n)*)end$", re.MULTILINE
)
_PLACEHOLDER_CHARS: Final = 300
_LINES: Final = "p, div, br, li, tr, table, blockquote, pre, hr, h1, h2, h3, h4, h5, h6"
"""Elements of HTML before and after which a line ends."""
_BREAK: Final = "\x1e"
_BROKEN: Final = (LookupError, ValueError, AttributeError, TypeError, IndexError)
"""What the parser of the standard library raises for damaged structures and headers."""


def parsed(content: bytes) -> EmailMessage:
    """The message; damaged ones as far as they go."""
    return email.message_from_bytes(content, policy=policy.default)


def listed(id: str, message: EmailMessage) -> Listed:
    """A message as lists show it."""
    body, _, _ = body_text(message, _SNIPPET_CHARS * 4)
    return Listed(
        id=id,
        sender=header(message, "From"),
        subject=header(message, "Subject"),
        date=_date(message),
        snippet=" ".join(body.split())[:_SNIPPET_CHARS],
    )


def letter(id: str, message: EmailMessage, max_chars: int) -> Letter:
    """A message with its text, of at most ``max_chars`` characters."""
    body, is_cut, notes = body_text(message, max_chars)
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
        message_id=next(iter(_REFERENCE.findall(header_text(message, "Message-ID"))), ""),
        references=tuple(_REFERENCE.findall(header_text(message, "References"))[-_MAX_LISTED:]),
        notes=notes,
    )


def header(message: EmailMessage, name: str) -> str:
    """A header on one line, without characters that are not seen."""
    return seen(header_text(message, name))[:_MAX_HEADER_CHARS]


def seen(text: str) -> str:
    """``text`` on one line, without control, invisible and direction-turning characters."""
    visible = (" " if c.isspace() or unicodedata.category(c) in _UNSEEN else c for c in text)
    return " ".join("".join(visible).split())


def body_text(message: EmailMessage, max_chars: int) -> tuple[str, bool, tuple[str, ...]]:
    """The text of a message, whether there is more of it, and notes on how it was decoded.

    Plain text is preferred, unless it says nothing of what the HTML beside it says. The text of
    mails in it follows under their senders and subjects.
    """
    body, note = _body(message)
    texts = [_UUENCODED.sub("", body)]
    for mail in _mails(message):
        named = {name: header(mail, name) for name in ("From", "Date", "Subject")}
        heads = [f"{name}: {value}" for name, value in named.items() if value]
        texts.append("\n".join([*heads, "", _body(mail)[0]]))
    raw = "\n\n".join(texts).splitlines()
    lines = (_BLANK.sub(" ", _visible_line(line)).strip() for line in raw)
    text = _MANY_LINES.sub("\n\n", "\n".join(lines)).strip()
    return text[:max_chars], len(text) > max_chars, (note,) if note else ()


def _body(message: EmailMessage) -> tuple[str, str]:
    """The text of a message without its attachments, and the note on its encoding."""
    found = {}
    for kind in ("plain", "html"):
        try:
            part = message.get_body(preferencelist=(kind,))
        except _BROKEN:
            part = None  # a damaged structure
        if part is not None:
            found[kind] = part_text(part)
    plain, rich = found.get("plain"), found.get("html")
    if rich is not None:
        shown = html_text(rich.text)
        if plain is None or _is_placeholder(plain.text, shown):
            return shown, rich.note
    return (plain.text.replace("\r\n", "\n"), plain.note) if plain else ("", "")


def _is_placeholder(plain: str, shown: str) -> bool:
    """Whether a plain text is empty, or short and without the words of the HTML."""
    if not plain.strip():
        return True
    words = set(shown.casefold().split())
    missing = words.difference(plain.casefold().split())
    # In any language it names what the reader's program cannot show.
    says_html = len(plain) < _PLACEHOLDER_CHARS and "html" in plain.casefold()
    return says_html and len(missing) > 0.7 * len(words)


def _mails(message: EmailMessage) -> Iterator[EmailMessage]:
    """Mails that are attached to the message, not those within them."""
    try:
        parts = list(message.iter_attachments())[:_MAX_LISTED]
    except _BROKEN:
        return
    for part in parts:
        if part.get_content_type() == "message/rfc822" and part.is_multipart():
            yield part.get_payload(0)  # type: ignore[misc]


def html_text(content: str) -> str:
    """Visible text of an HTML message: no styles, no scripts, no hidden parts."""
    tree = LexborHTMLParser(content)
    for node in tree.css("script, style, head, template, [hidden], [style*='display:none']"):
        node.decompose()
    root = tree.body or tree.root
    if root is None:
        return ""
    for node in root.css(_LINES):
        node.insert_before(_BREAK)
        node.insert_after(_BREAK)
    for node in root.css("td, th"):
        node.insert_after(" ")
    lines = (" ".join(line.split()) for line in root.text().split(_BREAK))
    return "\n".join(line for line in lines if line)


def _visible_line(line: str) -> str:
    return "".join(" " if c == "\t" or unicodedata.category(c) in _UNSEEN else c for c in line)


def _addresses(message: EmailMessage, name: str) -> tuple[str, ...]:
    try:
        found = message[name].addresses if message[name] is not None else ()
        return tuple(seen(str(each)) for each in found[:_MAX_LISTED])
    except _BROKEN:
        return ()


def _date(message: EmailMessage) -> str:
    try:
        return parsedate_to_datetime(header_text(message, "Date")).isoformat()
    except (ValueError, TypeError, OverflowError):
        return ""


def _attachments(message: EmailMessage) -> tuple[tuple[str, str, int], ...]:
    found = []
    try:
        for part in message.iter_attachments():
            found.append(_attachment(part))
            if len(found) == _MAX_LISTED:
                break
    except _BROKEN:
        pass  # a damaged structure: what was found so far
    for each in _UUENCODED.finditer(_body(message)[0]):
        size = sum((ord(line[0]) - 32) & 63 for line in each["lines"].splitlines())
        found.append((seen(each["name"])[:200], "application/octet-stream", size))
    return tuple(found[:_MAX_LISTED])


def _attachment(part: EmailMessage) -> tuple[str, str, int]:
    """Name, media type and bytes."""
    name, kind = seen(part.get_filename() or ""), part.get_content_type()
    if kind == "message/rfc822" and part.is_multipart():
        mail: EmailMessage = part.get_payload(0)  # type: ignore[assignment]
        name = name or f"{header(mail, 'Subject') or 'mail'}.eml"
        return name[:200], kind, len(bytes(mail))
    content = part.get_payload(decode=True)
    return name[:200], kind, len(content) if isinstance(content, bytes) else 0
