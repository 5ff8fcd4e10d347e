"""What is read of each format and encoding, in this process; limits and isolation elsewhere."""

import pytest
from sample_files.mail import mail
from sample_files.office import cell, docx, p, pptx, pptx_table, rows, shape, tbl, xlsx
from sample_files.pdf import PdfPage, Text, paragraph, pdf

from bos_documents.parsing.blocks import Page
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.reader import open_document


def read(content: bytes, name: str = "") -> list[Page]:
    source = open_document(content, name, ParsingLimits())
    return [source.page(number) for number in range(1, source.info.page_count + 1)]


def shown(page: Page) -> list[str]:
    """Blocks in short: ``h1 Title``, ``paragraph text``, ``table+1 a | b / 1 | 2``."""
    lines = []
    for block in page.blocks:
        kind = f"h{block.level}" if block.level else block.kind.value
        kind += f"+{block.header_rows}" if block.rows else ""
        lines.append(f"{kind} {block.text}".replace("\n", " / "))
    return lines


def test_pdf_has_headings_tables_without_running_lines() -> None:
    page = [
        Text(72, 760, "Acme Ltd - Confidential"),
        Text(72, 700, "Delivery", 16, bold=True),
        *paragraph(["The supplier shall deliver with-", "in ten days."], top=670),
        *(Text(x, 600, t) for x, t in ((72, "Item"), (200, "Qty"), (300, "Price"))),
        *(Text(x, 585, t) for x, t in ((72, "Bolt"), (200, "10"), (300, "2.50"))),
    ]
    pages = [PdfPage([*page, Text(300, 30, f"Page {n}")]) for n in range(1, 5)]
    for found in read(pdf(pages)):
        assert shown(found) == [
            "h1 Delivery",
            "paragraph The supplier shall deliver within ten days.",
            "table+1 Item | Qty | Price / Bolt | 10 | 2.50",
        ]


def test_pdf_keeps_what_stands_on_few_pages() -> None:
    pages = [PdfPage([Text(72, 760, "Once only"), *paragraph(["Body text here."])]), PdfPage()]
    assert "paragraph Once only" in shown(read(pdf(pages))[0])


def test_docx_has_styles_lists_tables_without_hidden_text() -> None:
    body = (
        p("Contract", "Heading1")
        + p("Own style", "Custom")
        + p("2.1 Delivery")
        + p("kept")
        + p("secret", run="<w:vanish/>")
        + f"<w:p><w:del><w:r><w:delText>old</w:delText></w:r></w:del><w:ins>{_run('new')}</w:ins></w:p>"  # noqa: E501
        + p("one", "ListBullet")
        + tbl([["A", "B"], ["1", tbl([["x", "y"], ["z", "w"]])]], header=True)
    )
    source = open_document(docx(body, title="T"), "", ParsingLimits())
    assert shown(source.page(1)) == [
        "h1 Contract",
        "h2 Own style",
        "h2 2.1 Delivery",
        "paragraph kept",
        "paragraph new",
        "list_item one",
        "table+1 A | B / 1 | x | y; z | w",
    ]
    assert (source.info.title, source.info.date) == ("T", "2025-03-14")
    assert "Hidden text is left out." in source.info.notes
    assert "Tracked changes are read as if accepted." in source.info.notes


def _run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


def test_pptx_has_ordered_slides_with_speaker_notes() -> None:
    first = (
        shape("below", at=(0, 5_000_000))
        + shape("above", at=(0, 1_000_000))
        + shape("unseen", at=(0, 0), hidden=True)
        + shape("Plan", kind="title", at=(0, 9_000_000))
    )
    pages = read(
        pptx(
            [first, shape("x"), pptx_table([["H", "I"], ["1", "2"]])], hidden=(2,), notes={1: "say"}
        )
    )
    assert shown(pages[0]) == [
        "h1 Plan",
        "paragraph above",
        "paragraph below",
        "paragraph Speaker notes: say",
    ]
    assert (shown(pages[1]), len(pages[1].notes)) == ([], 1)
    assert shown(pages[2]) == ["table+1 H | I / 1 | 2"]


def test_xlsx_has_stored_values_and_leaves_hidden_cells_out() -> None:
    first = (
        f'<row r="1">{cell("A1", "Name")}{cell("B1", "When")}{cell("C1", "Hidden")}</row>'
        f'<row r="2">{cell("A2", "Bolt")}{cell("B2", 45000, style=1)}{cell("C2", 7)}</row>'
        f'<row r="3" hidden="1">{cell("A3", "Secret")}</row>'
        f'<row r="4">{cell("A4", 4, formula="2+2")}{cell("B4", None, formula="A4*2")}</row>'
    )
    columns = '<cols><col min="3" max="3" hidden="1"/></cols>'
    pages = read(xlsx({"S": first, "H": rows([["no"]])}, hidden=("H",), columns=columns))
    assert shown(pages[0]) == ["table+1 Name | When / Bolt | 2023-03-15 / 4 | "]
    notes = " ".join(pages[0].notes)
    assert "1 hidden row" in notes
    assert "1 hidden column" in notes
    assert "1 formula without a stored value" in notes
    assert (pages[1].title, shown(pages[1]), len(pages[1].notes)) == ("H", [], 1)


def test_html_has_what_is_seen() -> None:
    html = (
        b"<!doctype html><title>T</title><h1>Head</h1><p>one <b>two</b><p style='display: none'>no</p>"  # noqa: E501
        b"<script>no()</script><!-- no --><ul><li>i</ul>"
        b"<table><tr><th>A<th>B<tr><td>1<td>x<table><tr><td>q<td>r</table></table>"
    )
    source = open_document(html, "", ParsingLimits())
    assert shown(source.page(1)) == [
        "h1 Head", "paragraph one two", "list_item i", "table+1 A | B / 1 | x; q | r",
    ]  # fmt: skip
    assert (source.info.title, len(source.info.notes)) == ("T", 1)


def test_markdown_has_headings_tables_and_code() -> None:
    text = b"# A\n\n**b** [l](u)\n\n|x|y|\n|-|-|\n|1|2|\n\n- i\n- j\n\n```\n# no\n```\n"
    assert shown(read(text, "a.md")[0]) == [
        "h1 A", "paragraph b l", "table+1 x | y / 1 | 2", "list_item i", "list_item j", "paragraph # no",  # noqa: E501
    ]  # fmt: skip


def test_text_is_cleaned_of_what_is_not_seen() -> None:
    text = "1. Scope\n\nCafe\u0301 a\u202eb\u200bc \U000e0041 inter-\nnational\x07\n\n- i\n"
    assert shown(read(text.encode(), "a.txt")[0]) == [
        "h1 1. Scope", "paragraph Caf\u00e9 abc international", "list_item i",
    ]  # fmt: skip


def test_mail_has_headers_text_and_attachments_as_pages() -> None:
    content = mail(
        "Dear Bob,\n\nit is late.",
        html="<p>other</p>",
        attached={"../p.csv": b"a;b\n1;2\n", "x.png": b"\x89PNG", "m.eml": mail("inner")},
    )
    source = open_document(content, "", ParsingLimits())
    pages = [source.page(number) for number in range(1, source.info.page_count + 1)]
    assert shown(pages[0])[1:] == ["paragraph Dear Bob,", "paragraph it is late."]
    assert "From: Ann" in pages[0].blocks[0].text
    assert (pages[1].title, shown(pages[1])) == ("p.csv", ["table+1 a | b / 1 | 2"])
    assert len(pages) == 2
    assert [name in " ".join(source.info.notes) for name in ("x.png", "m.eml")] == [True, True]
    assert (source.info.title, source.info.date) == ("Late delivery", "2025-03-14")


RUSSIAN = "Поставка должна быть произведена в течение пяти рабочих дней. За просрочку — штраф."


@pytest.mark.parametrize(
    ("content", "name", "text"),
    [
        (RUSSIAN.encode("cp1251"), "terms.txt", RUSSIAN),
        (
            f"Срок;Штраф\n5;{RUSSIAN}\n".encode("cp1251"),
            "terms.csv",
            f"Срок | Штраф / 5 | {RUSSIAN}",
        ),
        (f"# {RUSSIAN}\n".encode("cp1251"), "terms.md", RUSSIAN),
        (f"<html><body><p>{RUSSIAN}".encode("cp1251"), "terms.html", RUSSIAN),
    ],
)
def test_encoding_that_is_guessed_is_noted(content: bytes, name: str, text: str) -> None:
    source = open_document(content, name, ParsingLimits())
    assert shown(source.page(1))[0].endswith(text)
    assert "was read as windows-1251" in " ".join(source.info.notes)


def test_encoding_that_a_page_declares_is_read_without_a_note() -> None:
    content = f'<html><head><meta charset="windows-1251"></head><body><p>{RUSSIAN}'.encode("cp1251")
    source = open_document(content, "", ParsingLimits())
    assert shown(source.page(1)) == [f"paragraph {RUSSIAN}"]
    assert source.info.notes == ()
