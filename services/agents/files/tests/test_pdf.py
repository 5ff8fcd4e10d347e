"""PDF files: every script is drawn by glyphs of a font, and no text is code."""

import re
import zlib

import pypdfium2
import pytest

from bos_agentkit import AgentFailure
from bos_errors import InvalidArgument
from bos_files.pdf.blocks import markdown_blocks, text_blocks
from bos_files.pdf.fonts import font_folders
from bos_files.pdf.rendering import PdfMaker, PdfText

LATIN = "The quick brown fox: 12,34,567.89 € ₹ Übergröße façade"
DEVANAGARI = "क्षत्रिय ज्ञान श्री स्त्री विद्यालय हिन्दी द्वारा"
CHINESE = "汉语简体字文章"
TAMIL = "தமிழ் மொழி"


@pytest.fixture
def maker() -> PdfMaker:
    return PdfMaker(font_folders(), timeout_s=60, memory_mib=1024, at_once=1)


def read(content: bytes) -> str:
    document = pypdfium2.PdfDocument(content)
    try:
        return "\n".join(page.get_textpage().get_text_range() for page in document)
    finally:
        document.close()


def glyphs(content: bytes) -> list[str]:
    """Glyph ids of all texts that are shown, as four hexadecimal digits each."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.S):
        try:
            drawn = zlib.decompress(stream)
        except zlib.error:
            continue
        if b" Tf" not in drawn:
            continue
        found += _shown(drawn)
    return found


def _shown(drawn: bytes) -> list[str]:
    ids = []
    for text in re.findall(rb"\(((?:[^\\()]|\\.)*)\)|<([0-9A-Fa-f]+)>", drawn, re.S):
        raw = bytes.fromhex(text[1].decode()) if text[1] else _unescaped(text[0])
        ids += [raw[at : at + 2].hex() for at in range(0, len(raw) - 1, 2)]
    return ids


def _unescaped(text: bytes) -> bytes:
    escapes = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}

    def one(found: re.Match[bytes]) -> bytes:
        code = found[1]
        return bytes([int(code, 8)]) if code.isdigit() else escapes.get(code, code)

    return re.sub(rb"\\(\d{3}|.)", one, text, flags=re.S)


@pytest.mark.requirement("J-03")
@pytest.mark.parametrize("text", [LATIN, DEVANAGARI, CHINESE, TAMIL])
async def test_every_script_is_drawn_and_read_back(maker: PdfMaker, text: str) -> None:
    content = await maker.make(PdfText(f"# {text}\n\n{text}\n\n| a |\n|---|\n| **{text}** |"))
    said = re.sub(r"\s", "", read(content))
    assert said.count(re.sub(r"\s", "", text)) == 3
    shown = glyphs(content)
    assert len(shown) > 3 * len(text) // 2
    assert "0000" not in shown, "a character that no font has"


async def test_a_character_without_a_glyph_is_seen_by_that_check(maker: PdfMaker) -> None:
    assert "0000" in glyphs(await maker.make(PdfText("Linear A: \U00010600")))


async def test_han_characters_follow_the_language_of_the_text(maker: PdfMaker) -> None:
    chinese = await maker.make(PdfText("骨直 汉语"))
    assert await maker.make(PdfText("骨直 汉语")) == chinese
    japanese = await maker.make(PdfText("骨直 カタカナ"))
    assert b"NotoSansSC" in chinese
    assert b"NotoSansJP" in japanese
    assert b"NotoSansSC" not in japanese


@pytest.mark.security
async def test_texts_are_never_code(maker: PdfMaker) -> None:
    text = '#import "/etc/passwd" #read("/etc/passwd") #eval("1+1") $x^2$ \\u{41} #panic()'
    for format in ("markdown", "text"):
        said = read(await maker.make(PdfText(text, title=text, format=format)))
        assert "".join(said.split()).count('#read("/etc/passwd")') == 2
    said = read(await maker.make(PdfText("<script>x</script> ![img](https://x.example/y.png)")))
    assert "<script>x</script> img" in said


async def test_pages_are_numbered_and_long_words_stay_on_the_page(maker: PdfMaker) -> None:
    content = await maker.make(PdfText("word" * 200 + "\n\nline" * 200))
    document = pypdfium2.PdfDocument(content)
    try:
        pages = len(document)
        assert pages > 2
        for number, page in enumerate(document, 1):
            text = page.get_textpage()
            assert f"{number} / {pages}" in text.get_text_range()
            right = max(text.get_charbox(i)[2] for i in range(text.count_chars()))
            assert right < page.get_width() - 40
    finally:
        document.close()


async def test_cells_of_wide_tables_stay_on_a_page_on_its_side(maker: PdfMaker) -> None:
    row = "| Supercalifragilisticexpialidocious | 12345678901234567890.12 |" + " x |" * 8
    head = "|" + " some_long_column_name |" * 10 + "\n|" + "---|" * 10
    document = pypdfium2.PdfDocument(await maker.make(PdfText("\n".join([head, *[row] * 40]))))
    try:
        for page in document:
            assert page.get_width() > page.get_height()
            text = page.get_textpage()
            boxes = [text.get_charbox(i) for i in range(text.count_chars())]
            assert max(right for _, _, right, _ in boxes) < page.get_width() - 40
    finally:
        document.close()


async def test_a_custom_font_is_used_and_an_unknown_one_refused(maker: PdfMaker) -> None:
    assert b"LibertinusSerif" in await maker.make(PdfText("Hello", font="Libertinus Serif"))
    with pytest.raises(InvalidArgument, match="Noto Sans Devanagari"):
        await maker.make(PdfText("Hello", font="Comic Sans"))


async def test_a_text_that_takes_too_much_fails_and_leaves_no_process() -> None:
    maker = PdfMaker(font_folders(), timeout_s=60, memory_mib=64, at_once=1)
    with pytest.raises(AgentFailure, match="could not be made"):
        await maker.make(PdfText("Hello"))


def test_deep_wide_and_odd_markdown_is_bounded() -> None:
    assert markdown_blocks("> " * 300 + "deep")
    assert markdown_blocks("- " * 300 + "deep")
    assert len(text_blocks("a\n\nb\n\n\n\nc")) == 3
    wide = "|" + "a|" * 1300 + "\n|" + "---|" * 1300 + "\n" + ("|" + "b|" * 1300 + "\n") * 20
    table = markdown_blocks(wide)[0]
    assert len(table["head"]) * (1 + len(table["rows"])) <= 24_000
    (link, other) = markdown_blocks("[x](javascript:alert(1))\n\n[y](https://e.example)")
    assert all(not span["link"] for span in link["spans"])
    assert other["spans"][0]["link"] == "https://e.example"
