"""Clean text: what every parser's text goes through."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

import charset_normalizer

from bos_documents.parsing.rejections import DocumentRejected

MAX_PARAGRAPH = 64 * 1024
MAX_TITLE = 300
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_UTF_16: Final = ("utf_16_le", "utf_16_be")
LEGACY: Final = {
    "cp1252": "Windows-1252",
    "cp1250": "Windows-1250",
    "cp1251": "Windows-1251",
    "koi8_r": "KOI8-R",
    "cp866": "CP866",
    "cp1253": "Windows-1253",
    "cp1255": "Windows-1255",
    "cp1256": "Windows-1256",
    "cp932": "Shift JIS",
    "euc_jp": "EUC-JP",
    "gb18030": "GB 18030",
    "big5": "Big5",
    "cp949": "EUC-KR",
}
"""Encodings that files had before Unicode: codec and name; supersets stand for what they hold."""
_SAMPLE_BYTES: Final = 64 * 1024
_TEXT_CONTROLS: Final = frozenset((9, 10, 11, 12, 13, 27))
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


def decode(data: bytes) -> tuple[str, str]:
    """Text of ``data``, and the encoding it was read in.

    A byte order mark decides, then UTF-8 if it fits. Else the encoding is guessed from the first
    64 KiB: UTF-16 where there are zero bytes, and otherwise one of the encodings that files had
    before Unicode. What fits none of them is read as Windows-1252, with signs for what it lacks.

    Raises:
        DocumentRejected: The bytes are no text.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace"), name
    sample = data[:_SAMPLE_BYTES]
    if b"\0" in sample:
        if name := _guessed(sample[: len(sample) // 2 * 2], _UTF_16):
            return data.decode(name, "replace"), name
        raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED")
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in sample)
    if controls > max(2, len(sample) // 100):
        raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED")
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        name = _guessed(_whole_lines(sample, data), tuple(LEGACY)) or "cp1252"
        return data.decode(name, "replace"), name


def _whole_lines(sample: bytes, data: bytes) -> bytes:
    """The sample without its last line, which may end within a character."""
    end = sample.rfind(b"\n")
    return sample if len(sample) == len(data) or end < 0 else sample[:end]


def _guessed(sample: bytes, among: tuple[str, ...]) -> str:
    """The likeliest encoding of those given, of equally likely ones the first; empty for none."""
    matches = charset_normalizer.from_bytes(
        sample, cp_isolation=list(among), preemptive_behaviour=False, enable_fallback=False
    )
    ranked = [
        (match.chaos, -match.coherence, among.index(name))
        for match in matches
        for name in match.could_be_from_charset
        if name in among
    ]
    return among[min(ranked)[2]] if ranked else ""
