"""Media type of a file by its first bytes, never by its name or a server's header alone. Pure."""

from __future__ import annotations

import json
from typing import Final

OCTETS: Final = "application/octet-stream"
PDF: Final = "application/pdf"
TEXT: Final = "text/plain"
MARKDOWN: Final = "text/markdown"
CSV: Final = "text/csv"
JSON: Final = "application/json"
HTML: Final = "text/html"
XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_PPTX: Final = "application/vnd.openxmlformats-officedocument.presentationml.presentation"

# As the WHATWG's MIME Sniffing Standard has them, section 6.
_SIGNATURES: Final = (
    (b"%PDF-", PDF),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"Rar!\x1a\x07", "application/x-rar-compressed"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"\x7fELF", "application/x-elf"),
    (b"OggS\x00", "application/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
)
_MARKUP: Final = (b"<!doctype html", b"<html", b"<head", b"<body", b"<script", b"<iframe", b"<svg")
_HEAD_BYTES: Final = 64 * 1024
_BY_ENDING: Final = {".csv": CSV, ".md": MARKDOWN, ".markdown": MARKDOWN}


def sniffed(content: bytes, name: str = "") -> str:
    """The media type of ``content``; the name decides between kinds of plain text alone."""
    for signature, media_type in _SIGNATURES:
        if content.startswith(signature):
            return media_type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    if content[:4] == b"PK\x03\x04":
        return _zipped(content)
    return _textual(content, name)


def _zipped(content: bytes) -> str:
    for part, media_type in ((b"xl/", XLSX), (b"word/", _DOCX), (b"ppt/", _PPTX)):
        # Names of parts stand uncompressed in the headers and in the directory at the end.
        if part in content[:_HEAD_BYTES] or part in content[-_HEAD_BYTES:]:
            return media_type
    return "application/zip"


def _textual(content: bytes, name: str) -> str:
    head = content[:_HEAD_BYTES]
    text = decoded(content)
    if text is None:
        return OCTETS
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith(_MARKUP):
        return HTML
    if start.startswith(b"<?xml"):
        return "text/xml"
    for ending, media_type in _BY_ENDING.items():
        if name.lower().endswith(ending):
            return media_type
    return JSON if start[:1] in (b"{", b"[") and _is_json(text) else TEXT


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def decoded(content: bytes) -> str | None:
    """``content`` as UTF-8 text without a byte order mark; None if it is no text."""
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
