"""PDF by PDFium: characters with their places and sizes; pages that are pictures by OCR."""

from __future__ import annotations

import ctypes

import pypdfium2 as pdfium
import pypdfium2.raw as raw

from bos_documents.parsing.blocks import DocumentInfo, Page, PageText
from bos_documents.parsing.building import Blocks, counted
from bos_documents.parsing.detect import PDF
from bos_documents.parsing.formats.ocr import recognise
from bos_documents.parsing.formats.pdf_layout import Layout, Line, Segment, add_lines, layout_of
from bos_documents.parsing.formats.source import page_of
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import date_of, title_of

_SAMPLED = 12
"""Pages from which the layout is taken: as many as it takes, however long the document is."""
_DPI = 200
_MAX_PICTURE = 100_000_000
"""Pixels of a picture that is decoded at most; an A4 scan at 600 dpi has 35 million."""
_MAX_OBJECTS = 20_000
_INVISIBLE = 3
_MARGIN = 0.08
_GAP = 1.2
"""Gap between two words that stand in different columns, in sizes of a letter."""


class Pdf:
    """A PDF document."""

    def __init__(self, data: bytes, limits: ParsingLimits) -> None:
        self._limits = limits
        try:
            self._pdf = pdfium.PdfDocument(data)
            count = len(self._pdf)
        except pdfium.PdfiumError as error:
            protected = getattr(error, "err_code", None) in (
                raw.FPDF_ERR_PASSWORD,
                raw.FPDF_ERR_SECURITY,
            )
            reason = "DOCUMENT_ENCRYPTED" if protected else "DOCUMENT_DAMAGED"
            raise DocumentRejected(reason) from error
        if count > limits.pages:
            raise DocumentRejected("DOCUMENT_TOO_MANY_PAGES")
        if count < 1:
            raise DocumentRejected("DOCUMENT_DAMAGED")
        metadata = self._pdf.get_metadata_dict(skip_empty=True)
        notes = []
        attached = self._pdf.count_attachments()
        if attached > 0:
            notes.append(f"{counted(attached, 'attached file')} left out.")
        if self._pdf.get_formtype() != raw.FORMTYPE_NONE:
            notes.append("What was filled into forms is left out.")
        date = date_of(metadata.get("ModDate")) or date_of(metadata.get("CreationDate"))
        self.info = DocumentInfo(PDF, count, title_of(metadata.get("Title")), date, tuple(notes))
        self._layout: Layout | None = None

    def page(self, number: int) -> Page:
        """A page; pages may be read in any order."""
        if self._layout is None:
            self._layout = self._sample()
        try:
            page = self._pdf[number - 1]
        except pdfium.PdfiumError:
            return page_of(number, (), notes=(f"Page {number} is damaged and left out.",))
        try:
            lines, unseen = _lines(page, self._limits)
            blocks = Blocks(self._limits)
            add_lines(blocks, lines, self._layout)
            notes = [f"Page {number} has text that is not seen; it is read like the rest."]
            if sum(len(line.text) for line in lines) < 10 and (scan := self._scanned(page, number)):
                return scan
            return page_of(number, blocks.done, notes=notes if unseen else ())
        finally:
            page.close()

    def _sample(self) -> Layout:
        """The layout, from pages that stand evenly in it: the same at every resumption."""
        count = len(self._pdf)
        step = max(1, count // _SAMPLED)
        pages = []
        for at in range(0, count, step)[:_SAMPLED]:
            try:
                page = self._pdf[at]
            except pdfium.PdfiumError:
                continue
            pages.append(_lines(page, self._limits)[0])
            page.close()
        return layout_of(pages)

    def _scanned(self, page: pdfium.PdfPage, number: int) -> Page | None:
        """A page that is a picture, recognised where that can be done; None if it is none."""
        pictures = _pictures(page)
        if not pictures:
            return None
        limits = self._limits
        if not limits.ocr_program:
            return page_of(number, ())
        if max(pictures) > _MAX_PICTURE:
            note = f"Page {number} has a picture that is too large to be recognised."
            return page_of(number, (), notes=(note,))
        width, height = page.get_size()
        scale = _DPI / 72
        pixels = max(width * height * scale * scale, 1.0)
        scale *= min(1.0, (limits.ocr_pixels / pixels) ** 0.5)
        bitmap = page.render(scale=scale, grayscale=True, may_draw_forms=False)
        grey = _packed(bitmap)
        size = (bitmap.width, bitmap.height)
        bitmap.close()
        found = recognise(*size, grey, limits)
        if found is None:
            note = f"Page {number} could not be recognised in time."
            return page_of(number, (), notes=(note,))
        blocks = Blocks(limits)
        for paragraph in found:
            blocks.paragraph(paragraph)
        text = PageText.RECOGNISED if blocks.done else PageText.NONE
        return Page(number, tuple(blocks.done), text)


def _packed(bitmap: pdfium.PdfBitmap) -> bytes:
    """Grey pixels row by row without padding."""
    data = bytes(bitmap.buffer)
    if bitmap.stride == bitmap.width:
        return data[: bitmap.width * bitmap.height]
    rows = (data[at * bitmap.stride :][: bitmap.width] for at in range(bitmap.height))
    return b"".join(rows)


def _pictures(page: pdfium.PdfPage) -> list[int]:
    """Pixels of each picture on a page."""
    found = []
    width, height = ctypes.c_uint(), ctypes.c_uint()
    objects = page.get_objects(filter=(raw.FPDF_PAGEOBJ_IMAGE,), max_depth=4)
    for _, one in zip(range(_MAX_OBJECTS), objects, strict=False):
        raw.FPDFImageObj_GetImagePixelSize(one.raw, width, height)
        found.append(width.value * height.value)
    return found


def _lines(page: pdfium.PdfPage, limits: ParsingLimits) -> tuple[list[Line], bool]:
    """Lines of a page in the order of the file, and whether some text is not seen."""
    text = page.get_textpage()
    try:
        count = text.count_chars()
        if count > limits.page_chars:
            raise DocumentRejected("DOCUMENT_TOO_MUCH_TEXT")
        reader = _Characters(text.raw, page.get_bbox())
        for at in range(max(count, 0)):
            reader.take(at)
        reader.end()
        return reader.lines, reader.unseen
    finally:
        text.close()


class _Characters:
    """Puts characters together to segments and lines."""

    def __init__(self, text: object, box: tuple[float, float, float, float]) -> None:
        _, bottom, _, top = box
        margin = _MARGIN * (top - bottom)
        self._inner = (bottom + margin, top - margin)
        self.lines: list[Line] = []
        self.unseen = False
        self._text = text
        self._chars: list[str] = []
        self._left = self._right = self._base = self._size = 0.0
        self._bold = False
        self._x, self._y = ctypes.c_double(), ctypes.c_double()
        self._box = raw.FS_RECTF()
        self._colour = [ctypes.c_uint() for _ in range(4)]

    def take(self, at: int) -> None:
        """Take the next character."""
        code = raw.FPDFText_GetUnicode(self._text, at)
        if code in (2, 0xFFFE):  # how PDFium marks a word that goes on in the next line
            self._chars.append("\u00ad")
            return
        char = chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        if char in "\r\n":
            self.end()
            return
        if char.isspace() or raw.FPDFText_IsGenerated(self._text, at) == 1:
            if self._chars:
                self._chars.append(char)
            return
        raw.FPDFText_GetLooseCharBox(self._text, at, self._box)
        raw.FPDFText_GetCharOrigin(self._text, at, self._x, self._y)
        box, base = self._box, self._y.value
        size = abs(box.top - box.bottom) / 1.2 or raw.FPDFText_GetFontSize(self._text, at)
        if self._chars:
            gap = box.left - self._right
            moved = abs(base - self._base) > 0.5 * max(self._size, 1)
            if moved or gap > _GAP * max(self._size, 1) or gap < -3 * max(self._size, 1):
                self.end()
        if not self._chars:
            self._begin(at, box.left, base, size)
        self._chars.append(char)
        self._right = box.right

    def _begin(self, at: int, left: float, base: float, size: float) -> None:
        self._left, self._base = left, base
        own = raw.FPDFText_GetFontSize(self._text, at)
        matrix = raw.FS_MATRIX()
        if raw.FPDFText_GetMatrix(self._text, at, matrix):
            own *= (matrix.c**2 + matrix.d**2) ** 0.5
        self._size = own if own > 0.1 else size
        self._bold = raw.FPDFText_GetFontWeight(self._text, at) >= 600 or _is_named_bold(
            self._text, at
        )
        self.unseen = self.unseen or self._is_unseen(at)

    def _is_unseen(self, at: int) -> bool:
        if self._size < 1.5:
            return True
        found = raw.FPDFText_GetTextObject(self._text, at)
        if found and raw.FPDFTextObj_GetTextRenderMode(found) == _INVISIBLE:
            return True
        if not raw.FPDFText_GetFillColor(self._text, at, *self._colour):
            return False
        *rgb, alpha = (part.value for part in self._colour)
        return alpha < 10 or min(rgb) >= 250

    def end(self) -> None:
        """End a segment; it joins the line before if it stands on that one's base."""
        # Spaces at the end are dropped, but not what marks a word that goes on in the next line.
        text = "".join(self._chars).rstrip(" ")
        self._chars = []
        if not text.strip():
            return
        segment = Segment(text, self._left, self._right)
        last = self.lines[-1] if self.lines else None
        if (
            last is not None
            and abs(last.base - self._base) <= 0.35 * max(last.size, self._size)
            and segment.left >= last.segments[-1].right
        ):
            last.segments.append(segment)
            return
        low, high = self._inner
        margin = not low < self._base < high
        self.lines.append(Line(self._base, self._size, self._bold, margin, [segment]))


def _is_named_bold(text: object, at: int) -> bool:
    name = ctypes.create_string_buffer(128)
    flags = ctypes.c_int()
    raw.FPDFText_GetFontInfo(text, at, name, 128, flags)
    return b"bold" in name.value.lower() or b"black" in name.value.lower()
