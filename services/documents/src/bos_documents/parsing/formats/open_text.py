"""ODT and EPUB: their XML and HTML, within the bounds of archives."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from bos_documents.parsing.archive import Archive
from bos_documents.parsing.blocks import DocumentInfo, Page
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import EPUB, ODT
from bos_documents.parsing.formats.html import open_html
from bos_documents.parsing.formats.source import OnePage
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import date_of, title_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from xml.etree.ElementTree import Element

    from bos_documents.parsing.limits import ParsingLimits

_NS = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_TEXT, _TABLE, _OFFICE = (_NS % name for name in ("text", "table", "office"))
_DC = "{http://purl.org/dc/elements/1.1/}"
_OPF = "{http://www.idpf.org/2007/opf}"
_XENC = "{http://www.w3.org/2001/04/xmlenc#}"
_OBFUSCATED = {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
_LEFT_OUT = {f"{_TEXT}tracked-changes", f"{_OFFICE}annotation", f"{_TEXT}note-citation"}
_ROW_GROUPS = {f"{_TABLE}table-{name}" for name in ("header-rows", "rows", "row-group")}
_MAX_DEPTH = 60
_MOST_REPEATED = 200


def open_odt(data: bytes, limits: ParsingLimits) -> OnePage:
    """A text document of OpenDocument; deletions and comments are left out."""
    archive = Archive(data, limits)
    root = archive.xml("content.xml")
    body = root.find(f"{_OFFICE}body/{_OFFICE}text") if root is not None else None
    if root is None or body is None:
        raise DocumentRejected("DOCUMENT_DAMAGED")
    blocks = Blocks(limits)
    _read(body, blocks, 0)
    notes = []
    if next(root.iter(f"{_TEXT}tracked-changes"), None) is not None:
        notes.append("Tracked changes are read as if accepted.")
    if next(root.iter(f"{_OFFICE}annotation"), None) is not None:
        notes.append("Comments are left out.")
    if any(name.startswith("Pictures/") and not name.endswith("/") for name in archive.names):
        notes.append("Pictures are left out.")
    meta = archive.xml("meta.xml")
    title = next(meta.iter(f"{_DC}title"), None) if meta is not None else None
    changed = next(meta.iter(f"{_DC}date"), None) if meta is not None else None
    info = DocumentInfo(
        ODT,
        1,
        title_of(title.text) if title is not None else "",
        date_of(changed.text) if changed is not None else "",
        tuple(notes),
    )
    return OnePage(info, blocks.done)


def _read(container: Element, blocks: Blocks, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise DocumentRejected("DOCUMENT_TOO_COMPLEX")
    for element in container:
        if element.tag == f"{_TEXT}h":
            level = element.get(f"{_TEXT}outline-level", "1")
            blocks.heading(_text(element), int(level) if level.isdigit() else 1)
        elif element.tag == f"{_TEXT}p":
            blocks.paragraph(_text(element))
        elif element.tag == f"{_TEXT}list-item":
            blocks.item(_text(element))
        elif element.tag == f"{_TABLE}table":
            rows = [_cells(row) for row in _rows(element)]
            header = element.find(f"{_TABLE}table-header-rows")
            blocks.table(rows, len(header) if header is not None else None)
        elif element.tag not in _LEFT_OUT:
            _read(element, blocks, depth + 1)


def _rows(table: Element) -> Iterator[Element]:
    """Its rows, those of groups too; not those of tables in its cells."""
    for child in table:
        if child.tag == f"{_TABLE}table-row":
            yield child
        elif child.tag in _ROW_GROUPS:
            yield from _rows(child)


def _cells(row: Element) -> list[str]:
    cells: list[str] = []
    for cell in row:
        count = cell.get(f"{_TABLE}number-columns-repeated", "1")
        times = min(int(count), _MOST_REPEATED) if count.isdigit() and len(count) < 9 else 1
        cells += [_text(cell)] * times
    return cells


def _text(element: Element) -> str:
    return "".join(_pieces(element, 0)).strip()


def _pieces(element: Element, depth: int) -> Iterator[str]:
    if depth > _MAX_DEPTH:
        raise DocumentRejected("DOCUMENT_TOO_COMPLEX")
    yield element.text or ""
    for child in element:
        if child.tag == f"{_TEXT}s":
            yield " "
        elif child.tag == f"{_TEXT}tab":
            yield "\t"
        elif child.tag == f"{_TEXT}line-break":
            yield "\n"
        elif child.tag == f"{_TEXT}ruby-text":
            yield f"({''.join(_pieces(child, depth + 1))})"
        elif child.tag not in _LEFT_OUT:
            yield from _pieces(child, depth + 1)
            if child.tag == f"{_TEXT}p":
                yield "\n"
        yield child.tail or ""


def _is_protected(encryption: Element, chapters: Collection[str]) -> bool:
    """Whether more than fonts is encrypted: these are obfuscated (EPUB 3.3, section 4.3)."""
    for each in encryption:
        method = each.find(f"{_XENC}EncryptionMethod")
        if method is None or method.get("Algorithm") not in _OBFUSCATED:
            return True
        names = (found.get("URI", "") for found in each.iter(f"{_XENC}CipherReference"))
        if any(posixpath.normpath(unquote(name)) in chapters for name in names):
            return True
    return False


class Epub:
    """A book: one page a chapter, in the order of its spine."""

    def __init__(self, data: bytes, limits: ParsingLimits) -> None:
        self._archive = Archive(data, limits)
        self._limits = limits
        container = self._archive.xml("META-INF/container.xml")
        paths = (
            [] if container is None else [each.get("full-path", "") for each in container.iter()]
        )
        path = next(filter(None, paths), "")
        package = self._archive.xml(path) if path else None
        if package is None:
            raise DocumentRejected("DOCUMENT_DAMAGED")
        folder = posixpath.dirname(path)
        items = {each.get("id"): each.get("href", "") for each in package.iter(f"{_OPF}item")}
        spine = (items.get(each.get("idref"), "") for each in package.iter(f"{_OPF}itemref"))
        self._chapters = [
            posixpath.normpath(posixpath.join(folder, unquote(each))) for each in spine if each
        ]
        title, date = (
            next((each.text for each in package.iter(f"{_DC}{name}") if each.text), "")
            for name in ("title", "date")
        )
        encryption = self._archive.xml("META-INF/encryption.xml")
        if encryption is not None and _is_protected(encryption, self._chapters):
            raise DocumentRejected("DOCUMENT_ENCRYPTED")
        self.info = DocumentInfo(EPUB, len(self._chapters), title_of(title), date_of(date))

    def page(self, number: int) -> Page:
        """A chapter."""
        found = open_html(self._archive.read(self._chapters[number - 1]), self._limits)
        page = found.page(1)
        return Page(number, page.blocks, page.text, found.info.title, found.info.notes)
