"""What is read of each format and encoding, in this process; limits and isolation elsewhere."""

import codecs
import random

import pytest
from sample_files.mail import mail
from sample_files.office import cell, docx, p, pptx, pptx_table, rows, shape, tbl, xlsx
from sample_files.pdf import PdfPage, Text, paragraph, pdf

from bos_documents.parsing.blocks import Page
from bos_documents.parsing.formats.plain import encoding_notes
from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.reader import open_document
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import LEGACY, decode


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


ENGLISH = "The buyer pays within thirty days of delivery."
GERMAN = "Die Lieferung erfolgt binnen fünf Werktagen; Größe und Stückzahl prüft der Käufer."
POLISH = "Dostawa musi nastąpić w ciągu pięciu dni roboczych. Opóźnienie kosztuje dwa złote."
RUSSIAN = "Поставка должна быть произведена в течение пяти рабочих дней. За просрочку — штраф."
GREEK = "Η παράδοση πρέπει να γίνει εντός πέντε εργάσιμων ημερών."
JAPANESE = "納品は五営業日以内に行わなければならない。カタカナもあります。"
CHINESE = "交货必须在五个工作日内完成。延迟将收取罚款。"
TAIWANESE = "交貨必須在五個工作日內完成。延遲將收取罰款。"
KOREAN = "납품은 영업일 기준 오일 이내에 이루어져야 합니다. 지연 시 위약금이 부과됩니다."

TEXTS = [
    (JAPANESE, "utf-8"),
    (ENGLISH, "utf-16-le"),
    (RUSSIAN, "utf-16-be"),
    (GERMAN, "cp1252"),
    (POLISH, "cp1250"),
    (RUSSIAN, "cp1251"),
    (RUSSIAN.replace("—", "-"), "koi8-r"),
    (GREEK, "cp1253"),
    (JAPANESE, "shift_jis"),
    (JAPANESE, "euc_jp"),
    (CHINESE, "gb18030"),
    (TAIWANESE, "big5"),
    (KOREAN, "euc_kr"),
]


@pytest.mark.parametrize(("text", "encoding"), TEXTS)
def test_encoding_is_detected(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[0] == text


def test_sample_cut_within_a_character_keeps_the_guess() -> None:
    for ascii_before in range(4):
        whole = "x" * ascii_before + "\n" + f"{JAPANESE}\n" * 2000
        assert decode(whole.encode("shift_jis"))[0] == whole


def test_only_a_guessed_encoding_is_noted() -> None:
    _, guessed = decode(RUSSIAN.encode("cp1251"))
    assert "was read as Windows-1251" in " ".join(encoding_notes(guessed))
    for certain in (RUSSIAN.encode(), RUSSIAN.encode("utf-16")):
        assert encoding_notes(decode(certain)[1]) == ()


def test_every_encoding_is_one_that_the_runtime_knows() -> None:
    assert [codecs.lookup(name).name for name in LEGACY]


def test_binary_data_are_refused() -> None:
    noise = random.Random(1).randbytes(5000)
    for data in (noise, b"\x7fELF" + bytes(1000), bytes(64) + noise):
        with pytest.raises(DocumentRejected):
            decode(data)


@pytest.mark.parametrize("text", ["Café crème", "“Grüße” – 50 €"])
def test_a_few_words_of_western_europe_are_read_as_windows_1252(text: str) -> None:
    assert decode(text.encode("cp1252")) == (text, "cp1252")
