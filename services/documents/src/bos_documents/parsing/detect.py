"""Media type of a file from its content; the name decides only between kinds of text."""

from __future__ import annotations

import csv
import re
from collections import Counter

from bos_documents.parsing.archive import Archive
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import decode

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
XLS = "application/vnd.ms-excel"
XLSB = "application/vnd.ms-excel.sheet.binary.macroenabled.12"
RTF = "application/rtf"
ODS = "application/vnd.oasis.opendocument.spreadsheet"
ODT = "application/vnd.oasis.opendocument.text"
EPUB = "application/epub+zip"
CSV = "text/csv"
TSV = "text/tab-separated-values"
HTML = "text/html"
MARKDOWN = "text/markdown"
TEXT = "text/plain"
EML = "message/rfc822"

_OFFICE = (("word/document.xml", DOCX), ("ppt/presentation.xml", PPTX), ("xl/workbook.xml", XLSX))
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PICTURE = "Pictures are not read; save the scan as a PDF and upload that."
_PACKED = "Archives are not unpacked; upload the files in it one by one."
_PROGRAM = "Programs are not documents."
_REFUSED: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG", _PICTURE),
    (b"\xff\xd8\xff", _PICTURE),
    (b"GIF8", _PICTURE),
    (b"II*\0", _PICTURE),
    (b"MM\0*", _PICTURE),
    (b"RIFF", "Sounds, films and pictures are not read."),
    (b"\x1f\x8b", _PACKED),
    (b"7z\xbc\xaf\x27\x1c", _PACKED),
    (b"Rar!", _PACKED),
    (b"BZh", _PACKED),
    (b"\xfd7zXZ", _PACKED),
    (b"PK\x05\x06", _PACKED),
    (b"\x7fELF", _PROGRAM),
    (b"MZ", _PROGRAM),
    (b"%!PS", "PostScript is not read; save it as PDF."),
    (b"SQLite format 3", "Databases are not documents; export a table as CSV."),
)
_HEADER = re.compile(r"^[A-Za-z][A-Za-z0-9-]{1,60}:[ \t]?\S?")
_MAIL_HEADERS = {
    "from", "to", "cc", "subject", "date", "received", "mime-version", "message-id", "return-path",
    "content-type", "reply-to", "delivered-to", "sender", "content-transfer-encoding", "bcc",
}  # fmt: skip
_HTML = re.compile(
    r"^\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta|div|p|h[1-6]|table)\b",
    re.IGNORECASE | re.DOTALL,
)
_MARKDOWN = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        r"^#{1,6} \S",
        r"^```",
        r"^\|?[ :]*-{3,}[ :]*\|[ :|-]*$",
        r"\[[^\]\n]{1,200}\]\([^)\s]{1,500}\)",
        r"\*\*[^*\n]{1,200}\*\*",
    )
)


def detect(data: bytes, name: str, limits: ParsingLimits) -> str:
    """Media type of ``data``.

    Args:
        data: The whole file.
        name: Its name; believed only to tell CSV, TSV, Markdown and plain text apart.
        limits: Bounds.

    Raises:
        DocumentRejected: It is of no supported kind, empty, or encrypted.
    """
    if not data:
        raise DocumentRejected("DOCUMENT_EMPTY")
    for magic, message in _REFUSED:
        if data.startswith(magic):
            raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED", message)
    if data.startswith(_OLE):
        return _ole(data)
    if data.startswith(b"{\\rtf"):
        return RTF
    if data.startswith(b"PK\x03\x04"):
        return _office(Archive(data, limits))
    if b"%PDF-" in data[:1024] and not _looks_like_mail(data[:1024].decode("latin-1")):
        return PDF
    text = decode(data).text
    if not text.strip():
        raise DocumentRejected("DOCUMENT_EMPTY")
    return _text_type(text, name.lower())


def _ole(data: bytes) -> str:
    """XLS; files of other programs of Office 97 to 2003 are refused by what helps."""

    def has(stream: str) -> bool:
        return stream.encode("utf-16-le") in data

    if has("EncryptedPackage"):
        raise DocumentRejected("DOCUMENT_ENCRYPTED")
    if has("__properties_version1.0"):
        message = "Mails of Outlook are not read; save it as .eml."
    elif has("WordDocument"):
        message = "Files of Word 97 to 2003 are not read; save it as .docx."
    elif has("PowerPoint Document"):
        message = "Files of PowerPoint 97 to 2003 are not read; save it as .pptx."
    elif has("Workbook") or has("Book"):
        return XLS
    else:
        message = "Files of Office 97 to 2003 are not read; save it as .docx, .xlsx or .pptx."
    raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED", message)


def _office(archive: Archive) -> str:
    for name, media_type in _OFFICE:
        if name in archive.names:
            return media_type
    if "xl/workbook.bin" in archive.names:
        return XLSB
    kind = archive.read("mimetype").strip().decode("ascii", "replace")
    if kind in (ODS, ODT, EPUB):
        return kind
    if kind.startswith("application/vnd.oasis.opendocument"):
        raise DocumentRejected(
            "DOCUMENT_TYPE_UNSUPPORTED",
            "Of OpenDocument, texts and spreadsheets are read; save this file as .pptx or PDF.",
        )
    raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED", _PACKED)


def _text_type(text: str, name: str) -> str:
    head = text[:8192]
    if _HTML.match(head):
        return HTML
    if _looks_like_mail(head):
        return EML
    if name.endswith((".md", ".markdown")):
        return MARKDOWN
    separator = delimiter(head)
    if separator == "\t":
        return TSV
    if separator and (name.endswith((".csv", ".tsv")) or not name.endswith(".txt")):
        return CSV
    if name.endswith((".csv", ".tsv")):
        return CSV if name.endswith(".csv") else TSV
    signs = sum(bool(pattern.search(head)) for pattern in _MARKDOWN)
    return MARKDOWN if signs >= 2 else TEXT


def _looks_like_mail(head: str) -> bool:
    found = set()
    for number, line in enumerate(head.replace("\r\n", "\n").split("\n")):
        if line[:1] in (" ", "\t") and number:
            continue
        if not _HEADER.match(line):
            break
        found.add(line.split(":", 1)[0].lower())
    return len(found & _MAIL_HEADERS) >= 2


def delimiter(head: str) -> str:
    """What separates the columns of a table written as text; empty if it is no table."""
    lines = head.split("\n")
    whole = lines if len(head) < 8192 else lines[:-1]
    sample = [line for line in whole if line.strip()][:50]
    if len(sample) < 2:
        return ""
    for separator in ("\t", ";", ",", "|"):
        try:
            rows = list(csv.reader(sample, delimiter=separator))
        except csv.Error:
            continue
        widths = Counter(len(row) for row in rows)
        width, count = widths.most_common(1)[0]
        prose = sum(len(cell) for row in rows for cell in row) > 60 * sum(map(len, rows))
        needed = 2 if separator in ";\t" else 3
        # Two columns by a comma are often sentences.
        if width == 2 and separator == "," and count == len(rows) and not prose:
            needed = 2 if not any(", " in line for line in sample) else 3
        if width >= needed and count >= 0.9 * len(rows) and not prose:
            return separator
    return ""
