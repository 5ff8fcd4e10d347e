"""PDF files, written by hand, so that everything in them is known."""

import zlib
from dataclasses import dataclass, field


@dataclass
class Text:
    """Text at a place of a page (72 units an inch, from below)."""

    x: float
    y: float
    text: str
    size: float = 11
    bold: bool = False
    render: int = 0
    """3 is invisible."""
    white: bool = False


@dataclass
class PdfPage:
    """A page: texts, and pictures of one grey tone or of given pixels."""

    texts: list[Text] = field(default_factory=list)
    picture: tuple[int, int, bytes] | None = None
    """Width, height, and grey pixels deflated; fills the page."""


def paragraph(
    lines: list[str], *, top: float = 700, left: float = 72, size: float = 11
) -> list[Text]:
    """Lines below one another."""
    return [Text(left, top - at * size * 1.3, line, size) for at, line in enumerate(lines)]


def pdf(
    pages: list[PdfPage], *, title: str = "", trailer: str = "", extra: list[bytes] | None = None
) -> bytes:
    """A PDF file."""
    objects: list[bytes] = [b"", b""]  # catalogue and page tree, filled in below
    fonts = []
    for name in ("Helvetica", "Helvetica-Bold"):
        objects.append(
            f"<</Type/Font/Subtype/Type1/BaseFont/{name}/Encoding/WinAnsiEncoding>>".encode()
        )
        fonts.append(len(objects))
    kids = []
    for page in pages:
        picture = b""
        if page.picture:
            width, height, data = page.picture
            head = (
                f"<</Type/XObject/Subtype/Image/Width {width}/Height {height}/ColorSpace/DeviceGray"
                f"/BitsPerComponent 8/Filter/FlateDecode/Length {len(data)}>>"
            )
            objects.append(head.encode() + b"stream\n" + data + b"\nendstream")
            picture = f"/XObject<</I {len(objects)} 0 R>>".encode()
        content = _content(page)
        objects.append(
            f"<</Length {len(content)}/Filter/FlateDecode>>".encode()
            + b"stream\n"
            + content
            + b"\nendstream"
        )
        body = len(objects)
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R/Resources<</Font<</F %d 0 R/B %d 0 R>>%s>>>>"  # noqa: E501
            % (body, *fonts, picture)
        )
        kids.append(len(objects))
    objects[0] = b"<</Type/Catalog/Pages 2 0 R>>"
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (
        b" ".join(b"%d 0 R" % kid for kid in kids),
        len(kids),
    )
    objects += extra or []
    info = ""
    if title:
        objects.append(b"<</Title(%s)/CreationDate(D:20250314120000Z)>>" % title.encode("latin-1"))
        info = f"/Info {len(objects)} 0 R"
    return _file(objects, info + trailer)


def encrypted_pdf() -> bytes:
    """A PDF encrypted by a password that is not known."""
    key = "00" * 32
    encrypt = f"<</Filter/Standard/V 2/R 3/Length 128/P -44/O<{'11' * 32}>/U<{key}>>>".encode()
    plain = pdf([PdfPage(paragraph(["secret"]))])
    number = plain.count(b" 0 obj") + 1
    return pdf(
        [PdfPage(paragraph(["secret"]))],
        extra=[encrypt],
        trailer=f"/Encrypt {number} 0 R/ID[<{'22' * 16}><{'22' * 16}>]",
    )


def scan(width: int = 200, height: int = 260) -> PdfPage:
    """A page that is a picture."""
    return PdfPage(picture=(width, height, zlib.compress(b"\xc0" * (width * height))))


def _content(page: PdfPage) -> bytes:
    parts = [b"q 612 0 0 792 0 0 cm /I Do Q"] if page.picture else []
    for one in page.texts:
        escaped = one.text.encode("cp1252", "replace")
        for char in (b"\\", b"(", b")"):
            escaped = escaped.replace(char, b"\\" + char)
        colour = b"1 1 1 rg" if one.white else b"0 0 0 rg"
        font = b"B" if one.bold else b"F"
        parts.append(
            b"BT %s %d Tr /%s %.1f Tf %.2f %.2f Td (%s) Tj ET"
            % (colour, one.render, font, one.size, one.x, one.y, escaped)
        )
    return zlib.compress(b"\n".join(parts))


def _file(objects: list[bytes], trailer: str) -> bytes:
    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        out += b"%010d 00000 n \n" % place
    out += b"trailer<</Size %d/Root 1 0 R%s>>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        trailer.encode(),
        start,
    )
    return bytes(out)
