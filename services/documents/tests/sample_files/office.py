"""Office files (DOCX, PPTX, XLSX), written by hand from their parts."""

import io
import zipfile
from html import escape

_REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_P = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
)
_R = f'xmlns:r="{_REL}"'
_CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/'
    'core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms='
    '"http://purl.org/dc/terms/"><dc:title>%s</dc:title><dcterms:modified>2025-03-14T10:00:00Z'
    "</dcterms:modified></cp:coreProperties>"
)


def archive(parts: dict[str, str | bytes]) -> bytes:
    """A ZIP archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in parts.items():
            packed.writestr(name, content)
    return out.getvalue()


def relations(*targets: tuple[str, str]) -> str:
    """Relations rId1, rId2, … of (kind, target)."""
    inner = "".join(
        f'<Relationship Id="rId{at}" Type="{_REL}/{kind}" Target="{target}"/>'
        for at, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}">{inner}</Relationships>'


def p(text: str, style: str = "", run: str = "", extra: str = "") -> str:
    """A paragraph of DOCX; ``run`` are properties of its text, ``extra`` its own."""
    own = f'<w:pStyle w:val="{style}"/>' if style else ""
    return (
        f"<w:p><w:pPr>{own}{extra}</w:pPr><w:r><w:rPr>{run}</w:rPr>"
        f'<w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'
    )


def tbl(rows: list[list[str]], *, header: bool = False) -> str:
    """A table of DOCX; a cell that begins with ``<`` is XML."""
    out = ""
    for at, row in enumerate(rows):
        cells = "".join(f"<w:tc>{c if c.startswith('<') else p(c)}</w:tc>" for c in row)
        first = "<w:trPr><w:tblHeader/></w:trPr>" if header and at == 0 else ""
        out += f"<w:tr>{first}{cells}</w:tr>"
    return f"<w:tbl>{out}</w:tbl>"


def docx(body: str, *, title: str = "", extra: dict[str, str | bytes] | None = None) -> bytes:
    """A text document. Styles: Heading1 to Heading3, ``Custom`` (based on Heading2), ListBullet."""
    styles = "".join(
        f'<w:style w:styleId="Heading{n}"><w:name w:val="heading {n}"/></w:style>'
        for n in (1, 2, 3)
    )
    styles += '<w:style w:styleId="Custom"><w:name w:val="Our head"/><w:basedOn w:val="Heading2"/></w:style>'  # noqa: E501
    styles += '<w:style w:styleId="ListBullet"><w:name w:val="List Bullet"/></w:style>'
    return archive(
        {
            "[Content_Types].xml": "<Types/>",
            "word/document.xml": f"<w:document {_W}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {_W}>{styles}</w:styles>",
            "docProps/core.xml": _CORE % escape(title),
            **(extra or {}),
        }
    )


def cell(reference: str, value: object, *, formula: str = "", style: int = 0) -> str:
    """A cell of XLSX; None with a formula has no stored value."""
    inner = f"<f>{escape(formula)}</f>" if formula else ""
    if isinstance(value, str):
        kind = ' t="str"' if formula else ' t="inlineStr"'
        inner += f"<v>{escape(value)}</v>" if formula else f"<is><t>{escape(value)}</t></is>"
    else:
        kind = ""
        inner += "" if value is None else f"<v>{value}</v>"
    return f'<c r="{reference}" s="{style}"{kind}>{inner}</c>'


def rows(values: list[list[object]]) -> str:
    """Rows of XLSX from A1 on."""
    return "".join(
        f'<row r="{r}">{"".join(cell(f"{chr(65 + c)}{r}", v) for c, v in enumerate(row))}</row>'
        for r, row in enumerate(values, 1)
    )


def xlsx(
    sheets: dict[str, str],
    *,
    hidden: tuple[str, ...] = (),
    columns: str = "",
    extra: dict[str, str | bytes] | None = None,
) -> bytes:
    """A workbook: name and rows of each sheet. Style 1 is a date, style 2 a percentage."""
    listed = "".join(
        f'<sheet name="{escape(name)}" sheetId="{at}" r:id="rId{at}"'
        f"{' state=' + chr(34) + 'hidden' + chr(34) if name in hidden else ''}/>"
        for at, name in enumerate(sheets, 1)
    )
    links = relations(
        *(("worksheet", f"worksheets/sheet{at}.xml") for at in range(1, len(sheets) + 1))
    )
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "xl/workbook.xml": f"<workbook {_S} {_R}><sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": links,
        "xl/styles.xml": f'<styleSheet {_S}><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/>'
        '<xf numFmtId="9"/></cellXfs></styleSheet>',
    }
    for at, content in enumerate(sheets.values(), 1):
        sheet = f"<worksheet {_S}>{columns}<sheetData>{content}</sheetData></worksheet>"
        parts[f"xl/worksheets/sheet{at}.xml"] = sheet
    return archive(parts | (extra or {}))


def shape(
    text: str, *, kind: str = "", at: tuple[int, int] | None = None, hidden: bool = False
) -> str:
    """A shape of PPTX with a paragraph a line; ``kind`` is that of a placeholder."""
    place = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else "<p:nvPr/>"
    offset = f'<a:xfrm><a:off x="{at[0]}" y="{at[1]}"/></a:xfrm>' if at else ""
    lines = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in text.split("\n"))
    mark = ' hidden="1"' if hidden else ""
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="1" name="x"{mark}/>{place}</p:nvSpPr>'
        f"<p:spPr>{offset}</p:spPr><p:txBody>{lines}</p:txBody></p:sp>"
    )


def pptx_table(values: list[list[str]]) -> str:
    """A table of PPTX whose first row is its header."""
    inner = "".join(
        "<a:tr>"
        + "".join(
            f"<a:tc><a:txBody><a:p><a:r><a:t>{escape(c)}</a:t></a:r></a:p></a:txBody></a:tc>"
            for c in row
        )
        + "</a:tr>"
        for row in values
    )
    return (
        '<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="2" name="t"/><p:nvPr/></p:nvGraphicFramePr>'  # noqa: E501
        f'<a:graphic><a:graphicData><a:tbl><a:tblPr firstRow="1"/>{inner}</a:tbl></a:graphicData></a:graphic>'  # noqa: E501
        "</p:graphicFrame>"
    )


def pptx(
    slides: list[str], *, hidden: tuple[int, ...] = (), notes: dict[int, str] | None = None
) -> bytes:
    """A presentation from the shapes of its slides; numbers are from 1."""
    parts: dict[str, str | bytes] = {
        "[Content_Types].xml": "<Types/>",
        "ppt/presentation.xml": f"<p:presentation {_P} {_R}><p:sldIdLst>"
        + "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
        + "</p:sldIdLst></p:presentation>",
        "ppt/_rels/presentation.xml.rels": relations(
            *(("slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1))
        ),
    }
    for n, shapes in enumerate(slides, 1):
        mark = ' show="0"' if n in hidden else ""
        tree = f"<p:cSld><p:spTree>{shapes}</p:spTree></p:cSld>"
        parts[f"ppt/slides/slide{n}.xml"] = f"<p:sld {_P}{mark}>{tree}</p:sld>"
        if notes and n in notes:
            links = relations(("notesSlide", f"../notesSlides/notesSlide{n}.xml"))
            parts[f"ppt/slides/_rels/slide{n}.xml.rels"] = links
            tree = f"<p:cSld><p:spTree>{shape(notes[n], kind='body')}</p:spTree></p:cSld>"
            parts[f"ppt/notesSlides/notesSlide{n}.xml"] = f"<p:notes {_P}>{tree}</p:notes>"
    return archive(parts)
