"""Writer of PPTX files: a slide for each section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from bos_demo.documents.packages import RELATIONS, package, relations
from bos_demo.documents.sources import Block, Heading, Source, Table

_P = (
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    f'xmlns:r="{RELATIONS}"'
)
_TYPE = "application/vnd.openxmlformats-officedocument.presentationml"
_THEME_TYPE = "application/vnd.openxmlformats-officedocument.theme+xml"
_GROUP = '<p:nvGrpSpPr><p:cNvPr id="1" name=""/><p:cNvGrpSpPr/><p:nvPr/></p:nvGrpSpPr><p:grpSpPr/>'
_WIDTH = 8_000_000
_ROW_HEIGHT = 370_000
_COLOURS = ("dk1", "lt1", "dk2", "lt2", *(f"accent{n}" for n in range(1, 7)), "hlink", "folHlink")


def write_pptx(source: Source) -> bytes:
    """Return the document as PPTX; headings of levels 1 and 2 begin a slide and title it."""
    slides = _slides(source.blocks)
    masters = [("slideMaster", "slideMasters/slideMaster1.xml")]
    targets = [("slide", f"slides/slide{at}.xml") for at in range(1, len(slides) + 1)]
    ids = "".join(
        f'<p:sldId id="{255 + at}" r:id="rId{at + 1}"/>' for at in range(1, len(slides) + 1)
    )
    parts = {
        "ppt/presentation.xml": f"<p:presentation {_P}><p:sldMasterIdLst>"
        '<p:sldMasterId id="2147483648" r:id="rId1"/></p:sldMasterIdLst>'
        f'<p:sldIdLst>{ids}</p:sldIdLst><p:sldSz cx="9144000" cy="6858000"/>'
        '<p:notesSz cx="6858000" cy="9144000"/></p:presentation>',
        "ppt/_rels/presentation.xml.rels": relations([*masters, *targets]),
        **_master(),
    }
    types = {
        "ppt/presentation.xml": f"{_TYPE}.presentation.main+xml",
        "ppt/slideMasters/slideMaster1.xml": f"{_TYPE}.slideMaster+xml",
        "ppt/slideLayouts/slideLayout1.xml": f"{_TYPE}.slideLayout+xml",
        "ppt/theme/theme1.xml": _THEME_TYPE,
    }
    for (_, target), (title, blocks) in zip(targets, slides, strict=True):
        number = target.removeprefix("slides/")
        parts[f"ppt/{target}"] = _slide(title, blocks)
        parts[f"ppt/slides/_rels/{number}.rels"] = relations(
            [("slideLayout", "../slideLayouts/slideLayout1.xml")]
        )
        types[f"ppt/{target}"] = f"{_TYPE}.slide+xml"
    return package("ppt/presentation.xml", parts, types, source.title, source.day)


def _slides(blocks: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    slides: list[tuple[str, list[Block]]] = []
    for block in blocks:
        if isinstance(block, Heading):
            slides.append((block.text, []))
        else:
            slides[-1][1].append(block)
    return slides


def _slide(title: str, blocks: Sequence[Block]) -> str:
    shapes = [_shape(2, "title", [title], 400_000, 900_000)]
    top = 1_500_000
    for number, block in enumerate(blocks, 3):
        if isinstance(block, Table):
            shapes.append(_table(number, block, top))
            top += _ROW_HEIGHT * len(block.rows) + 200_000
        else:
            shapes.append(_shape(number, "", [block.text], top, 500_000))
            top += 600_000
    return f"<p:sld {_P}><p:cSld><p:spTree>{_GROUP}{''.join(shapes)}</p:spTree></p:cSld></p:sld>"


def _shape(number: int, kind: str, lines: Iterable[str], top: int, height: int) -> str:
    place = f'<p:nvPr><p:ph type="{kind}"/></p:nvPr>' if kind else "<p:nvPr/>"
    text = "".join(f"<a:p><a:r><a:t>{escape(line)}</a:t></a:r></a:p>" for line in lines)
    return (
        f'<p:sp><p:nvSpPr><p:cNvPr id="{number}" name="Text {number}"/><p:cNvSpPr/>{place}'
        f'</p:nvSpPr><p:spPr>{_frame("a", top, height)}<a:prstGeom prst="rect"><a:avLst/>'
        f"</a:prstGeom></p:spPr><p:txBody><a:bodyPr/>{text}</p:txBody></p:sp>"
    )


def _frame(prefix: str, top: int, height: int) -> str:
    return (
        f'<{prefix}:xfrm><a:off x="572000" y="{top}"/>'
        f'<a:ext cx="{_WIDTH}" cy="{height}"/></{prefix}:xfrm>'
    )


def _table(number: int, table: Table, top: int) -> str:
    width = _WIDTH // len(table.rows[0])
    grid = f'<a:gridCol w="{width}"/>' * len(table.rows[0])
    rows = "".join(
        f'<a:tr h="{_ROW_HEIGHT}">{"".join(map(_table_cell, row))}</a:tr>' for row in table.rows
    )
    return (
        f'<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="{number}" name="Table {number}"/>'
        f"<p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr>"
        f"{_frame('p', top, _ROW_HEIGHT * len(table.rows))}"
        '<a:graphic><a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/table">'
        f'<a:tbl><a:tblPr firstRow="1"/><a:tblGrid>{grid}</a:tblGrid>{rows}</a:tbl>'
        "</a:graphicData></a:graphic></p:graphicFrame>"
    )


def _table_cell(text: str) -> str:
    return (
        f"<a:tc><a:txBody><a:bodyPr/><a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p></a:txBody>"
        "<a:tcPr/></a:tc>"
    )


def _master() -> dict[str, str]:
    """The one master, layout and theme, without which no program opens a presentation."""
    tree = f"<p:cSld><p:spTree>{_GROUP}</p:spTree></p:cSld>"
    mapped = "".join(
        f'{name}="{colour}" '
        for name, colour in zip(
            ("bg1", "tx1", "bg2", "tx2", *_COLOURS[4:]),
            ("lt1", "dk1", "lt2", "dk2", *_COLOURS[4:]),
            strict=True,
        )
    )
    return {
        "ppt/slideMasters/slideMaster1.xml": f"<p:sldMaster {_P}>{tree}<p:clrMap {mapped}/>"
        '<p:sldLayoutIdLst><p:sldLayoutId id="2147483649" r:id="rId1"/></p:sldLayoutIdLst>'
        "</p:sldMaster>",
        "ppt/slideMasters/_rels/slideMaster1.xml.rels": relations(
            [("slideLayout", "../slideLayouts/slideLayout1.xml"), ("theme", "../theme/theme1.xml")]
        ),
        "ppt/slideLayouts/slideLayout1.xml": f"<p:sldLayout {_P}>{tree}</p:sldLayout>",
        "ppt/slideLayouts/_rels/slideLayout1.xml.rels": relations(
            [("slideMaster", "../slideMasters/slideMaster1.xml")]
        ),
        "ppt/theme/theme1.xml": _theme(),
    }


def _theme() -> str:
    values = ("000000", "FFFFFF", "1F3864", "E7E6E6", *("2E75B6",) * 6, "0563C1", "954F72")
    colours = "".join(
        f'<a:{name}><a:srgbClr val="{value}"/></a:{name}>'
        for name, value in zip(_COLOURS, values, strict=True)
    )
    font = '<a:latin typeface="Calibri"/><a:ea typeface=""/><a:cs typeface=""/>'
    fill = '<a:solidFill><a:schemeClr val="phClr"/></a:solidFill>'
    effect = "<a:effectStyle><a:effectLst/></a:effectStyle>"
    return (
        '<a:theme xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" name="Plain">'
        f'<a:themeElements><a:clrScheme name="Plain">{colours}</a:clrScheme>'
        f'<a:fontScheme name="Plain"><a:majorFont>{font}</a:majorFont>'
        f"<a:minorFont>{font}</a:minorFont></a:fontScheme>"
        f'<a:fmtScheme name="Plain"><a:fillStyleLst>{fill * 3}</a:fillStyleLst>'
        f"<a:lnStyleLst>{f'<a:ln>{fill}</a:ln>' * 3}</a:lnStyleLst>"
        f"<a:effectStyleLst>{effect * 3}</a:effectStyleLst>"
        f"<a:bgFillStyleLst>{fill * 3}</a:bgFillStyleLst></a:fmtScheme></a:themeElements></a:theme>"
    )
