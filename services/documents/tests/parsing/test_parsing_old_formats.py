"""Texts and workbooks of OpenDocument, EPUB, Rich Text, and Office of 1997 to 2003."""

import re

import pytest
from sample_files.office import archive

from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.reader import open_document
from bos_documents.parsing.rejections import DocumentRejected

_ODF = "urn:oasis:names:tc:opendocument:xmlns"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


def _odf(kind: str, body: str) -> bytes:
    declared = " ".join(f'xmlns:{name}="{_ODF}:{name}:1.0"' for name in ("office", "table", "text"))
    content = f"<office:{kind}>{body}</office:{kind}>"
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": f'<m:manifest xmlns:m="{_ODF}:manifest:1.0"/>',
            "content.xml": f"<office:document-content {declared}><office:body>{content}"
            "</office:body></office:document-content>",
        }
    )


def _row(*cells: str) -> str:
    inner = "".join(
        f'<table:table-cell office:value-type="string"><text:p>{cell}</text:p></table:table-cell>'
        for cell in cells
    )
    return f"<table:table-row>{inner}</table:table-row>"


def _epub(algorithm: str = "", file: str = "") -> bytes:
    opf = "http://www.idpf.org/2007/opf"
    xenc = "http://www.w3.org/2001/04/xmlenc#"
    encryption = (
        f'<encryption xmlns="{xenc}"><EncryptedData><EncryptionMethod Algorithm="{algorithm}"/>'
        f'<CipherData><CipherReference URI="{file}"/></CipherData></EncryptedData></encryption>'
    )
    return archive(
        ({"META-INF/encryption.xml": encryption} if algorithm else {})
        | {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfile full-path="o/b.opf"/></container>',
            "o/b.opf": f'<package xmlns="{opf}"><manifest><item id="b" href="b.xhtml"/>'
            '<item id="a" href="a%20a.xhtml"/></manifest><spine><itemref idref="a"/>'
            '<itemref idref="b"/></spine></package>',
            "o/a a.xhtml": "<html><body><p>第一章</p></body></html>",
            "o/b.xhtml": "<html><body><p>Penalty</p></body></html>",
        }
    )


OBFUSCATIONS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
CASES = [
    (
        _odf(
            "text",
            '<text:h text:outline-level="2">Vertrag</text:h><text:p>Größe<text:s/>5</text:p>'
            "<text:list><text:list-item><text:p>первый</text:p></text:list-item></text:list>"
            f"<table:table>{_row('项目', '价格')}{_row('泵', '100')}</table:table>",
        ),
        [["Vertrag", "Größe 5", "первый", "项目 | 价格\n泵 | 100"]],
    ),
    (
        _odf(
            "spreadsheet",
            f'<table:table table:name="S">{_row("a", "б")}{_row("1", "2")}</table:table>',
        ),
        [["a | б\n1 | 2"]],
    ),
    (_epub(), [["第一章"], ["Penalty"]]),
    *((_epub(each, "o/font.otf"), [["第一章"], ["Penalty"]]) for each in OBFUSCATIONS),
    # Nested tables are read once, and hidden text is not.
    (
        _odf(
            "text",
            "<table:table><table:table-header-rows>"
            + _row("a", "b")
            + "</table:table-header-rows>"
            + _row("1", f"</text:p><table:table>{_row('2')}</table:table><text:p>")
            + "</table:table>",
        ),
        [["a | b\n1 | 2"]],
    ),
    (
        rb"{\rtf1\ansi {\v secret }seen \v more\v0  shown\par}",
        [["seen shown"]],
    ),
    (
        rb"{\rtf1\ansi\ansicpg1251 {\b \'d8\'f2\'f0\'e0\'f4} 5\par Gr\u246?\u223?e\par}",
        [["Штраф 5", "Größe"]],
    ),
]


def test_older_formats_are_read_in_order() -> None:
    read = []
    for content, _ in CASES:
        source = open_document(content, "", ParsingLimits())
        pages = [source.page(number) for number in range(1, source.info.page_count + 1)]
        read.append([[block.text for block in page.blocks] for page in pages])
    assert read == [pages for _, pages in CASES]


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        ("WordDocument", r"save it as \.docx"),
        ("PowerPoint Document", r"save it as \.pptx"),
        ("__properties_version1.0", r"save it as \.eml"),
        ("unknown", r"save it as \.docx, \.xlsx or \.pptx"),
        ("Workbook", "damaged"),
    ],
)
def test_files_of_old_programs_are_refused_by_what_helps(stream: str, why: str) -> None:
    with pytest.raises(DocumentRejected) as refused:
        open_document(_OLE + stream.encode("utf-16-le"), "", ParsingLimits())
    assert re.search(why, refused.value.message)


@pytest.mark.parametrize(
    ("algorithm", "file"),
    [(OBFUSCATIONS[0], "o/a%20a.xhtml"), ("http://www.w3.org/2001/04/xmlenc#aes256-cbc", "o/x")],
)
def test_books_of_which_more_than_fonts_is_encrypted_are_refused(algorithm: str, file: str) -> None:
    with pytest.raises(DocumentRejected, match="DOCUMENT_ENCRYPTED"):
        open_document(_epub(algorithm, file), "", ParsingLimits())
