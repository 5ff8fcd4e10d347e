"""Writer of DOCX files."""

from __future__ import annotations

from xml.sax.saxutils import escape

from bos_demo.documents.packages import package, relations
from bos_demo.documents.sources import Block, Heading, Item, Paragraph, Source, Table

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_SIZES = (32, 26, 24, 22)
_BORDERS = "".join(
    f'<w:{side} w:val="single" w:sz="4" w:space="0" w:color="808080"/>'
    for side in ("top", "left", "bottom", "right", "insideH", "insideV")
)
_NUMBERING = (
    f'<w:numbering {_W}><w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0">'
    '<w:start w:val="1"/><w:numFmt w:val="bullet"/><w:lvlText w:val="•"/>'
    '<w:pPr><w:ind w:left="720" w:hanging="360"/></w:pPr></w:lvl></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
)


def write_docx(source: Source) -> bytes:
    """Return the document as DOCX."""
    body = "".join(map(_block, source.blocks))
    parts = {
        "word/document.xml": f"<w:document {_W}><w:body>{body}<w:sectPr/></w:body></w:document>",
        "word/styles.xml": _styles(),
        "word/numbering.xml": _NUMBERING,
        "word/_rels/document.xml.rels": relations(
            [("styles", "styles.xml"), ("numbering", "numbering.xml")]
        ),
    }
    types = {
        "word/document.xml": f"{_TYPE}.document.main+xml",
        "word/styles.xml": f"{_TYPE}.styles+xml",
        "word/numbering.xml": f"{_TYPE}.numbering+xml",
    }
    return package("word/document.xml", parts, types, source.title, source.day)


def _styles() -> str:
    headings = "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{level}"><w:name w:val="heading {level}"/>'
        f'<w:pPr><w:spacing w:before="240"/><w:outlineLvl w:val="{level - 1}"/></w:pPr>'
        f'<w:rPr><w:b/><w:sz w:val="{size}"/></w:rPr></w:style>'
        for level, size in enumerate(_SIZES, 1)
    )
    return (
        f'<w:styles {_W}><w:style w:type="paragraph" w:default="1" w:styleId="Normal">'
        '<w:name w:val="Normal"/><w:pPr><w:spacing w:after="120"/></w:pPr></w:style>'
        f'{headings}<w:style w:type="paragraph" w:styleId="ListBullet">'
        '<w:name w:val="List Bullet"/><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>'
        "</w:style></w:styles>"
    )


def _block(block: Block) -> str:
    match block:
        case Heading(level, text):
            return _paragraph(text, f"Heading{level}")
        case Item(text):
            return _paragraph(text, "" if text[0].isdigit() else "ListBullet")
        case Paragraph(text):
            return _paragraph(text)
        case Table(rows):
            return _table(rows)


def _paragraph(text: str, style: str = "") -> str:
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{named}<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def _table(rows: tuple[tuple[str, ...], ...]) -> str:
    grid = '<w:gridCol w:w="2000"/>' * len(rows[0])
    written = ""
    for number, row in enumerate(rows):
        head = "<w:trPr><w:tblHeader/></w:trPr>" if number == 0 else ""
        cells = "".join(f"<w:tc><w:tcPr/>{_paragraph(cell)}</w:tc>" for cell in row)
        written += f"<w:tr>{head}{cells}</w:tr>"
    return (
        f"<w:tbl><w:tblPr><w:tblBorders>{_BORDERS}</w:tblBorders></w:tblPr>"
        f"<w:tblGrid>{grid}</w:tblGrid>{written}</w:tbl><w:p/>"
    )
