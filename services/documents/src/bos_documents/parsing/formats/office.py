"""What all office files share: metadata, and what is left out of them."""

from __future__ import annotations

from bos_documents.parsing.archive import Archive
from bos_documents.parsing.building import counted
from bos_documents.parsing.text import date_of, title_of

_TERMS = "{http://purl.org/dc/terms/}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"


def metadata(archive: Archive) -> tuple[str, str]:
    """Title, and the date of the last change (else of creation) as YYYY-MM-DD."""
    root = archive.xml("docProps/core.xml")
    if root is None:
        return "", ""
    changed = date_of(root.findtext(f"{_TERMS}modified"))
    return title_of(root.findtext(_TITLE)), changed or date_of(root.findtext(f"{_TERMS}created"))


def left_out(archive: Archive) -> list[str]:
    """Notes on members of the archive that are not read."""
    names = archive.names
    notes = []
    if any(name.lower().endswith("vbaproject.bin") for name in names):
        notes.append("Macros are left out.")
    embedded = sum("/embeddings/" in name for name in names)
    if embedded:
        notes.append(f"{counted(embedded, 'embedded file')} left out.")
    pictures = sum("/media/" in name for name in names)
    if pictures:
        notes.append(f"{counted(pictures, 'picture')} left out.")
    charts = sum("/charts/chart" in name for name in names)
    if charts:
        notes.append(f"{counted(charts, 'chart')} left out.")
    diagrams = sum("/diagrams/data" in name for name in names)
    if diagrams:
        notes.append(f"{counted(diagrams, 'diagram')} left out.")
    if any("/comments" in name.lower() or "/threadedcomments" in name.lower() for name in names):
        notes.append("Comments are left out.")
    return notes
