"""Opens a document: detects what it is and hands it to its parser. Runs in workers only."""

from __future__ import annotations

from functools import partial

from bos_documents.parsing import detect
from bos_documents.parsing.formats.docx import open_docx
from bos_documents.parsing.formats.eml import Mail
from bos_documents.parsing.formats.html import open_html
from bos_documents.parsing.formats.markdown import open_markdown
from bos_documents.parsing.formats.old_workbooks import OldWorkbook
from bos_documents.parsing.formats.open_text import Epub, open_odt
from bos_documents.parsing.formats.pdf import Pdf
from bos_documents.parsing.formats.plain import open_rtf, open_table, open_text
from bos_documents.parsing.formats.pptx import Slides
from bos_documents.parsing.formats.source import Source
from bos_documents.parsing.formats.xlsx import Workbook
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.rejections import DocumentRejected


def open_document(data: bytes, name: str, limits: ParsingLimits, *, nested: bool = False) -> Source:
    """The document in ``data``.

    Raises:
        DocumentRejected: It cannot be read.
    """
    media_type = detect.detect(data, name, limits)
    if media_type == detect.EML and nested:
        raise DocumentRejected("DOCUMENT_TYPE_UNSUPPORTED", "Mails within mails are not read.")
    source = _open(media_type, data, limits)
    if source.info.page_count < 1:
        raise DocumentRejected("DOCUMENT_WITHOUT_TEXT")
    if source.info.page_count > limits.pages:
        raise DocumentRejected("DOCUMENT_TOO_MANY_PAGES")
    return source


def _open(media_type: str, data: bytes, limits: ParsingLimits) -> Source:
    match media_type:
        case detect.PDF:
            return Pdf(data, limits)
        case detect.DOCX:
            return open_docx(data, limits)
        case detect.PPTX:
            return Slides(data, limits)
        case detect.XLSX:
            return Workbook(data, limits)
        case detect.XLS | detect.XLSB | detect.ODS:
            return OldWorkbook(data, limits, media_type)
        case detect.RTF:
            return open_rtf(data, limits)
        case detect.ODT:
            return open_odt(data, limits)
        case detect.EPUB:
            return Epub(data, limits)
        case detect.HTML:
            return open_html(data, limits)
        case detect.MARKDOWN:
            return open_markdown(data, limits)
        case detect.CSV | detect.TSV:
            return open_table(data, limits, media_type)
        case detect.EML:
            return Mail(data, limits, partial(_open_part, limits=limits))
    return open_text(data, limits)


def _open_part(data: bytes, name: str, *, limits: ParsingLimits) -> Source:
    return open_document(data, name, limits, nested=True)
