"""Bytes to text: by mark, declaration, validity, and else by what is most plausible."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

import charset_normalizer

from bos_encodings.plausibility import CODECS, implausibility, is_ascii_with_signs

_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Labels that mean more than they say (https://encoding.spec.whatwg.org), or that Python lacks.
_LABELS: Final = {
    **dict.fromkeys(("iso8859-1", "latin-1", "iso8859-15", "ansi"), "cp1252"),
    **dict.fromkeys(("iso8859-9",), "cp1254"),
    **dict.fromkeys(("iso8859-11", "tis-620"), "cp874"),
    **dict.fromkeys(("gb2312", "gbk", "windows-936", "cp936", "x-gbk", "hz-gb-2312"), "gb18030"),
    **dict.fromkeys(("shift-jis", "x-sjis", "sjis", "windows-31j", "ms932"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks-c-5601-1987", "ksc5601", "windows-949"), "cp949"),
    **dict.fromkeys(("iso8859-8-i", "iso8859-8-e", "iso8859-8", "logical"), "cp1255"),
    **dict.fromkeys(("windows-874", "x-windows-874"), "cp874"),
    **dict.fromkeys(("windows-950", "x-x-big5"), "big5hkscs"),
    **dict.fromkeys(("macintosh", "x-mac-roman"), "mac_roman"),
    "iso-2022-jp": "iso2022_jp_ext",
    "big5": "big5hkscs",
    "unicode-1-1-utf-8": "utf-8",
    "x-mac-cyrillic": "mac_cyrillic",
}
_SAMPLE_BYTES: Final = 64 * 1024
_TEXT_CONTROLS: Final = frozenset((9, 10, 11, 12, 13, 26, 27))
_ESCAPES: Final = (
    (re.compile(rb"\x1b\$[@B]|\x1b\([IJ]"), "iso2022_jp_ext"),
    (re.compile(rb"\x1b\$\)C"), "iso2022_kr"),
)
_WESTERN: Final = "cp1252"
_UNPLAUSIBLE: Final = 0.9
"""Beyond it nothing is known of an encoding, and Western text is likeliest."""
_VALID_FOR_INVALID: Final = 4
"""Characters of UTF-8 for each invalid byte that make a text one of UTF-8."""

_WIDE_IF_UTF8: Final = 8
"""Valid UTF-8 may be UTF-16 if at least each of so many bytes is a control character."""
_WIDE_IF_NOT: Final = 100
"""The same of other bytes: text of UTF-16 in Chinese has few."""
_NO_CHARSETS: Final = frozenset({"punycode", "idna", "unicode-escape", "raw-unicode-escape"})
"""Codecs of Python that no text is in; some take time quadratic in its length."""


class NotText(ValueError):
    """The bytes are no text in any encoding."""


@dataclass(frozen=True, slots=True)
class TextReading:
    """A text as it was read.

    Attributes:
        text: without byte order mark; ``\ufffd`` stands for what could not be read.
        encoding: its name, such as ``utf-8`` or ``windows-1251``.
        note: what a reader should know of a reading in doubt, as one sentence; else empty.
    """

    text: str
    encoding: str
    note: str = ""


def read_text(data: bytes, *, declared: str = "") -> TextReading:
    """Return the text of ``data``.

    Args:
        data: The whole file, or body of a mail.
        declared: Charset that its sender declared; unknown and wrong ones are passed over.

    Raises:
        NotText: It holds bytes that no text has.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return TextReading(data[len(mark) :].decode(name, "replace"), name)
    if found := _declared(data, declared):
        return found
    try:
        text, name = data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, name = "", ""
    if name and "\0" not in text and (escaped := _escaped(data)):
        return escaped
    size = min(len(data), _SAMPLE_BYTES)
    controls = sum(byte < 32 and byte not in _TEXT_CONTROLS for byte in data[:size])
    if b"\0" in data or controls > max(2, size // 100):
        # A few make no UTF-16, of which each character below U+2000 has one.
        if controls * (_WIDE_IF_UTF8 if name else _WIDE_IF_NOT) < size:
            raise NotText
        return _wide(data)
    return TextReading(text, name) if name else _damaged_utf8(data) or _legacy(data)


def _declared(data: bytes, charset: str) -> TextReading | None:
    """The text in its declared charset; None if that is unknown, ASCII, or invalid for it."""
    label = re.sub(r"^iso[-_]?8859[-_]?", "iso8859-", charset.strip().strip("\"'").lower())
    label = label.partition(";")[0].strip().replace("_", "-")
    try:
        codec = codecs.lookup(_LABELS.get(label, label)) if label else None
    except (LookupError, ValueError):
        return None
    # Codecs such as zip and rot13 decode no text.
    if codec is None or codec.name == "ascii" or not getattr(codec, "_is_text_encoding", True):
        return None
    if codec.name.replace("_", "-") in _NO_CHARSETS:
        return None
    # HTML in which ASCII declares UTF-16 is not in UTF-16.
    if codec.name.startswith(("utf-16", "utf-32")) and b"\0" not in data:
        return None
    try:
        text = codec.decode(data, "strict")[0]
    except ValueError:
        # The rest of a text in a charset of escapes is read: nothing else has them.
        text = codec.decode(data, "replace")[0] if b"\x1b$" in data else ""
        if not text:
            return None
    return None if "\0" in text else TextReading(text, _shown(codec.name))


def _escaped(data: bytes) -> TextReading | None:
    for pattern, name in _ESCAPES:
        if data.isascii() and pattern.search(data):
            return TextReading(data.decode(name, "replace"), _shown(name))
    return None


def _wide(data: bytes) -> TextReading:
    """UTF-16 or UTF-32 without a mark, by where the zero bytes are.

    Raises:
        NotText: They are those of no text.
    """
    sample = data[: min(_SAMPLE_BYTES, len(data) // 4 * 4)]
    found: list[tuple[float, str]] = []
    for name in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        try:
            text = sample[: len(sample) // 4 * 4].decode(name)
        except UnicodeDecodeError as error:
            # A pair of UTF-16 may be cut at the end of the sample.
            if not name.startswith("utf-16") or error.start < len(sample) - 4:
                continue
            text = sample[: error.start].decode(name)
        if text and "\0" not in text:
            plain = sum(char.isprintable() or char.isspace() for char in text) / len(text)
            # Of the two orders of bytes, the one with more ASCII and letters of one block.
            blocks = len({_block(char) for char in text}) / len(text)
            found.append((blocks - plain, name))
    if not found or min(found)[0] > -0.3:
        raise NotText
    name = min(found)[1]
    return TextReading(data.decode(name, "replace"), name)


def _block(char: str) -> int:
    """Where a character stands in Unicode; all of Chinese is one block, and all of Korean."""
    high = ord(char) >> 8
    return 0x4E if 0x4E <= high < 0xA0 else 0xAC if 0xAC <= high < 0xD8 else high


def _damaged_utf8(data: bytes) -> TextReading | None:
    """Text of UTF-8 in which a few bytes are invalid; None if most are."""
    text = data.decode("utf-8", "replace")
    invalid = text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    valid = sum(char > "\x7f" for char in text) - invalid
    if valid < _VALID_FOR_INVALID * invalid:
        return None
    count = "1 place is" if invalid == 1 else f"{invalid} places are"
    note = f"{count} no valid UTF-8 and could not be read; \ufffd stands there."
    return TextReading(text, "utf-8", note)


def _legacy(data: bytes) -> TextReading:
    """The most plausible text of those in encodings from before Unicode, with a note."""
    codec = _likeliest(_beyond_ascii(data))
    shown = _shown(codec)
    note = (
        f"The text is not Unicode and was read as {shown}; if it looks garbled, save it as UTF-8."
    )
    return TextReading(data.decode(codec, "replace"), shown, note)


def _beyond_ascii(data: bytes) -> bytes:
    """Lines with bytes beyond ASCII, up to the size of a sample; a long one in whole words."""
    kept: list[bytes] = []
    size = 0
    for line in re.findall(rb"[^\r\n]*[\x80-\xff][^\r\n]*[\r\n]*", data):
        if kept and size + len(line) > _SAMPLE_BYTES:
            break
        kept.append(line)
        size += len(line)
    sample = b"".join(kept)
    if len(sample) <= _SAMPLE_BYTES:
        return sample
    cut = sample[:_SAMPLE_BYTES]
    end = max(cut.rfind(mark) for mark in (b" ", b",", b";", b"\t"))
    return cut[: end if end > 0 else _SAMPLE_BYTES]


def _likeliest(sample: bytes) -> str:
    if is_ascii_with_signs(sample.decode(_WESTERN, "replace")):
        return _WESTERN
    order = list(CODECS)
    matches = charset_normalizer.from_bytes(
        sample,
        cp_isolation=order,
        threshold=0.6,
        preemptive_behaviour=False,
        enable_fallback=False,
    )
    ranked = [
        (
            round(match.chaos + implausibility(sample.decode(name, "replace"), name), 2),
            -round(match.coherence, 1),
            order.index(name),
        )
        for match in matches
        for name in match.could_be_from_charset
        if name in CODECS
    ]
    if not ranked or min(ranked)[0] > _UNPLAUSIBLE:
        return _WESTERN
    return order[min(ranked)[2]]


def _shown(codec: str) -> str:
    """The name of a codec that people know."""
    if codec in CODECS:
        return CODECS[codec][0]
    return codec.replace("iso2022_jp_ext", "iso-2022-jp").replace("_", "-")
