"""Clean text: what every parser's text goes through."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from bos_documents.parsing.rejections import DocumentRejected
from bos_encodings import NotText, TextReading, read_text

MAX_PARAGRAPH = 64 * 1024
MAX_TITLE = 300
_HYPHENS = "\x02\ufffe\u00ad"


def _unwanted() -> dict[int, int | None]:
    """Characters that are dropped: they are not seen, but a model or a terminal may act on them."""
    dropped: dict[int, int | None] = dict.fromkeys((*range(32), *range(127, 160)))
    for first, last in (
        (0x200B, 0x200B),  # zero width space
        (0x2060, 0x2064),
        (0x202A, 0x202E),  # overrides of direction
        (0x2066, 0x206F),
        (0xD800, 0xDFFF),  # lone surrogates, which are not text
        (0xFFF9, 0xFFFB),
        (0xE0000, 0xE0FFF),  # tags, and selectors that can carry bytes
    ):
        dropped |= dict.fromkeys(range(first, last + 1))
    dropped |= dict.fromkeys((0xAD, 0x180E, 0xFEFF, 0xFFFE, 0xFFFF))
    dropped |= {9: 32, 10: 10, 11: 10, 12: 10, 13: 10, 0x85: 10, 0xA0: 32, 0x2028: 10, 0x2029: 10}
    return dropped


_TRANSLATION = _unwanted()
_SPACES = re.compile(r"[^\S\n]+")
_AROUND_BREAK = re.compile(r" ?\n ?")
_BULLET = re.compile(
    r"^(?:[-*+\u2022\u2023\u25aa\u25cf\u25e6\u2043\u2013]|\(?[0-9a-z]{1,3}[.)])\s+"
)
_NUMBERED = re.compile(r"^(\d{1,3}(?:\.\d{1,3}){0,5})\.?\s+(?=\S*[^\W\d_])")
_NAMED = re.compile(
    r"^(?:(chapter|part|appendix|annex|kapitel|teil|anhang)|(section|article|abschnitt|artikel)|(§))"
    r"\s*[\dA-Z]{1,4}(?:[.\d]*)\b",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """``text`` in NFC, without control and invisible characters; lines and single spaces stay."""
    text = unicodedata.normalize("NFC", text.replace("\r\n", "\n").translate(_TRANSLATION))
    return _AROUND_BREAK.sub("\n", _SPACES.sub(" ", text)).strip()


def one_line(text: str) -> str:
    """``text`` cleaned, as one line."""
    return " ".join(clean(text).split())


def title_of(text: object) -> str:
    """A title from a file's metadata: one line of bounded length."""
    return one_line(text[: 4 * MAX_TITLE])[:MAX_TITLE] if isinstance(text, str) else ""


def date_of(text: object) -> str:
    """YYYY-MM-DD at the beginning of ``text``, which may be ISO 8601 or a PDF date; else empty."""
    found = (
        re.match(r"(?:D:)?((?:19|20)\d\d)-?(\d\d)-?(\d\d)", text) if isinstance(text, str) else None
    )
    if found is None:
        return ""
    year, month, day = (int(part) for part in found.groups())
    return f"{year:04}-{month:02}-{day:02}" if 1 <= month <= 12 and 1 <= day <= 31 else ""


def join_lines(lines: Iterable[str]) -> str:
    """Lines of a paragraph as one; words that were divided at a line's end are joined."""
    joined = ""
    for raw in lines:
        soft = raw.rstrip()[-1:] in _HYPHENS if raw.rstrip() else False
        line = one_line(raw.rstrip().rstrip(_HYPHENS) + ("-" if soft else ""))
        if not line:
            continue
        if joined.endswith("-") and len(joined) > 1 and joined[-2].isalpha() and line[0].islower():
            joined = joined[:-1] + line
        else:
            joined = f"{joined} {line}" if joined else line
    return joined


def without_bullet(line: str) -> str | None:
    """The text of a list item, or None if ``line`` is none."""
    found = _BULLET.match(line)
    return line[found.end() :].strip() or None if found else None


def heading_level(line: str) -> int:
    """Level of ``line`` if its text alone makes it a heading, else 0.

    Numbered (``2.1 Delivery``) or named (``Section 4``, ``Appendix B``); or short and in capitals.
    """
    if not 2 <= len(line) <= 120 or "\n" in line or line[-1] in ".;,":
        return 0
    if found := _NAMED.match(line):
        return 1 if found.group(1) else 2
    if found := _NUMBERED.match(line):
        rest = line[found.end() :]
        number = found.group(1)
        # A year, or an amount such as "12 pieces", begins no section.
        whole = "." in number or line[found.end(1)] == "." or int(number) < 100
        ok = whole and (rest[0].isupper() or not rest[0].isalpha()) and len(rest.split()) <= 12
        return min(number.count(".") + 1, 6) if ok else 0
    letters = [char for char in line if char.isalpha()]
    if len(letters) >= 4 and len(line) <= 80 and len(line.split()) <= 10 and line.isupper():
        return 1
    return 0


def decode(data: bytes, declared: str = "") -> TextReading:
    """Text of ``data``, its encoding, and a note where that is in doubt.

    Args:
        data: A text in any encoding.
        declared: Charset that the document declares.

    Raises:
        DocumentRejected: The bytes are no text.
    """
    try:
        return read_text(data, declared=declared)
    except NotText as error:
        raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED") from error
