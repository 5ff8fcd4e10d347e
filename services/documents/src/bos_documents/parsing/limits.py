"""Bounds of parsing one document."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ParsingLimits:
    """Bounds of one document; the worker keeps them, and the parent checks what it can see."""

    file_bytes: int = 64 * MIB
    pages: int = 2000
    memory_bytes: int = 768 * MIB
    """Address space of a worker."""
    page_cpu_s: int = 30
    document_cpu_s: int = 600
    open_s: float = 60.0
    """Wall time until the document's pages are known."""
    page_s: float = 60.0
    document_s: float = 1800.0
    page_chars: int = 8_000_000
    document_chars: int = 32_000_000
    page_blocks: int = 100_000
    page_cells: int = 500_000
    unpacked_bytes: int = 256 * MIB
    """All members of an archive that are read, together."""
    member_bytes: int = 128 * MIB
    unpack_ratio: int = 200
    """Unpacked to packed size of a member over one MiB."""
    members: int = 10_000
    attachments: int = 20
    ocr_program: str = ""
    """Path of tesseract; empty: pages that are pictures stay without text."""
    ocr_languages: str = "eng"
    ocr_page_s: float = 45.0
    """Less than ``page_s``: a page that cannot be recognised in time is without text."""
    ocr_pixels: int = 12_000_000
