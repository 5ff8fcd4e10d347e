"""Text that office files hold elsewhere than in plain runs and cells is read, or noted."""

from sample_files.office import docx, p, xlsx

from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.reader import open_document

_M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_S = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def _t(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def _math(inner: str) -> str:
    return f"<w:p><m:oMath {_M}>{inner}</m:oMath></w:p>"


def _run(inner: str) -> str:
    return f"<w:p><w:r>{inner}</w:r></w:p>"


def _ruby(base: str, reading: str) -> str:
    parts = (("rt", reading), ("rubyBase", base))
    inner = "".join(f"<w:{tag}><w:r><w:t>{text}</w:t></w:r></w:{tag}>" for tag, text in parts)
    return _run(f"<w:ruby>{inner}</w:ruby>")


def _script(base: str, raised: str) -> str:
    return f"<m:sSup><m:e>{_t(base)}</m:e><m:sup>{_t(raised)}</m:sup></m:sSup>"


PARAGRAPHS = [
    (_math(_t("E=m") + _script("c", "2")), "E=mc^2"),
    (_math(_script("e", "x+y")), "e^(x+y)"),
    (_math(f"<m:f><m:num>{_t('a+b')}</m:num><m:den>{_t('2')}</m:den></m:f>"), "(a+b)/2"),
    (_math(f"<m:rad><m:e>{_t('x')}</m:e></m:rad>"), "√(x)"),
    (_math(f"<m:d><m:e>{_t('年利率')}</m:e></m:d>"), "(年利率)"),
    (_ruby("漢字", "かんじ"), "漢字(かんじ)"),
    (_ruby("北京", "Běijīng"), "北京(Běijīng)"),
    (_ruby("base", ""), "base"),
    (_run('<w:sym w:font="Symbol" w:char="F061"/>'), "α"),
    (_run('<w:sym w:font="Wingdings" w:char="F0FC"/><w:t> done</w:t>'), "✓ done"),
    (_run('<w:t>5 </w:t><w:sym w:font="Arial" w:char="20AC"/>'), "5 €"),
]


def test_formulas_ruby_and_symbols_of_docx_are_read() -> None:
    read = []
    for body, text in PARAGRAPHS:
        page = open_document(docx(body), "", ParsingLimits()).page(1)
        read.append((" ".join(block.text for block in page.blocks), text))
    assert [each for each in read if each[0] != each[1]] == []


def test_symbols_that_are_pictures_are_noted() -> None:
    source = open_document(
        docx(_run('<w:sym w:font="Webdings" w:char="F012"/>') + p("x")), "", ParsingLimits()
    )
    assert source.info.notes == ("Some symbols are of a font of pictures and left out.",)


def test_headers_and_footers_of_docx_are_read_once() -> None:
    parts: dict[str, str | bytes] = {
        "word/header1.xml": f"<w:hdr {_W}>{p('合同 HX-7781')}</w:hdr>",
        "word/header2.xml": f"<w:hdr {_W}>{p('合同 HX-7781')}</w:hdr>",
        "word/footer1.xml": f"<w:ftr {_W}>{p('Valid until 2027')}</w:ftr>",
        "word/footer2.xml": f"<w:ftr {_W}>{p('12')}</w:ftr>",
    }
    page = open_document(docx(p("Body."), extra=parts), "", ParsingLimits()).page(1)
    assert [block.text for block in page.blocks] == ["合同 HX-7781", "Body.", "Valid until 2027"]


FORMATS = [
    ("[h]:mm", "1.5", "36:00:00"),
    ("[hh]:mm:ss", "0.5", "12:00:00"),
    ("mmmm", "46112", "2026-03-31"),
    ("mmmm yyyy", "46112", "2026-03-31"),
    ("#,##0.00\\ &quot;€&quot;", "1234.5", "1234.5 €"),
    ("[$¥-804]#,##0", "100", "100 ¥"),
    ("&quot;$&quot;#,##0.00", "2", "2 $"),
    ("00000", "1234", "01234"),
    ("0.0%", "0.075", "7.5%"),
    ("0;(0)", "-5", "-5"),
    ("h:mm", "0.5", "12:00"),
]


def test_values_of_xlsx_are_shown_by_their_formats() -> None:
    codes = "".join(
        f'<numFmt numFmtId="{at}" formatCode="{code}"/>'
        for at, (code, *_) in enumerate(FORMATS, 170)
    )
    styles = "".join(f'<xf numFmtId="{at}"/>' for at in range(170, 170 + len(FORMATS)))
    sheet = f"<styleSheet {_S}><numFmts>{codes}</numFmts><cellXfs>{styles}</cellXfs></styleSheet>"
    cells = [
        [f'<c r="A{at + 1}" t="str"><v>k</v></c>', f'<c r="B{at + 1}" s="{at}"><v>{value}</v></c>']
        for at, (_, value, _) in enumerate(FORMATS)
    ]
    made = xlsx(
        {"S": "".join(f'<row r="{at}">{"".join(row)}</row>' for at, row in enumerate(cells, 1))},
        extra={"xl/styles.xml": sheet},
    )
    (table,) = open_document(made, "", ParsingLimits()).page(1).blocks
    assert [row[1] for row in table.rows] == [text for *_, text in FORMATS]


def test_formula_with_an_empty_value_is_noted() -> None:
    content = '<row r="1"><c r="A1"><v>1</v></c><c r="B1"><f>A1*2</f><v></v></c></row>'
    page = open_document(xlsx({"S": content}), "", ParsingLimits()).page(1)
    assert "1 formula without a stored value left out" in page.notes[0]
