"""Text of parts and headers of mails, in charsets that are declared, wrong or missing."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bos_encodings.reading import NotText, TextReading, read_text

if TYPE_CHECKING:
    from email.message import Message

_BROKEN: Final = (LookupError, ValueError, AttributeError, TypeError, IndexError)
"""What the parser of the standard library raises for damaged parts and headers."""
_WORD: Final = re.compile(r"=\?([^?\s]{1,60})\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_WORDS: Final = re.compile(r"(?<=\?=)[ \t\r\n]+(?==\?)")


def part_text(part: Message) -> TextReading:
    """Text of a part of a mail, its lines joined where they flow (RFC 3676).

    Empty for a part that holds no text.
    """
    try:
        payload = part.get_payload(decode=True)
        charset = part.get_content_charset() or ""
        flows = str(part.get_param("format") or "").lower() == "flowed"
        joins = str(part.get_param("delsp") or "").lower() == "yes"
    except _BROKEN:
        return TextReading("", "")
    try:
        found = read_text(payload if isinstance(payload, bytes) else b"", declared=charset)
    except NotText:
        return TextReading("", "")
    text = found.text.removeprefix("\ufeff")
    return replace(found, text=_unfolded(text, joins=joins) if flows else text)


def header_text(message: Message, name: str) -> str:
    """A header as it is meant; what the parser could not decode is decoded by its bytes."""
    try:
        shown = str(message[name] or "")
    except _BROKEN:
        shown = "\ufffd"  # headers of others can make the parser fail
    if shown.isascii() and "=?" not in shown:
        return shown
    if not re.search("\ufffd|=\\?|[\ud800-\udfff]", shown):
        return shown
    raw = next((text for key, text in message.raw_items() if key.lower() == name.lower()), "")
    return _words(str(raw))


def _words(raw: str) -> str:
    """Encoded words (RFC 2047); adjacent ones of one charset share their characters."""
    raw = _BETWEEN_WORDS.sub("", raw)
    parts: list[tuple[str, bytes]] = []
    end = 0
    for word in _WORD.finditer(raw):
        parts.append(("", raw[end : word.start()].encode("utf-8", "surrogateescape")))
        end = word.end()
        charset, content = word[1].partition("*")[0].lower(), _word(word[2], word[3])
        while parts and not parts[-1][1]:
            parts.pop()
        if parts and parts[-1][0] == charset:
            content = parts.pop()[1] + content
        parts.append((charset, content))
    parts.append(("", raw[end:].encode("utf-8", "surrogateescape")))
    return "".join(_read(content, charset) for charset, content in parts)


def _word(encoding: str, text: str) -> bytes:
    data = text.encode("ascii", "ignore")
    if encoding in "qQ":
        return binascii.a2b_qp(data.replace(b"_", b" "), header=True)
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4))
    except ValueError:
        return b""


def _read(content: bytes, charset: str) -> str:
    try:
        return read_text(content, declared=charset).text
    except NotText:
        return ""


def _unfolded(text: str, *, joins: bool) -> str:
    """Paragraphs of a flowed text; ``joins``: the space at the end of a line is none of it."""
    lines: list[str] = []
    flows = False
    for line in text.splitlines():
        plain = line.removeprefix(" ")
        if flows and not plain.startswith(">"):
            lines[-1] += plain
        else:
            lines.append(plain)
        flows = plain.endswith(" ") and plain != "-- "
        if flows and joins:
            lines[-1] = lines[-1][:-1]
    return "\n".join(lines)
