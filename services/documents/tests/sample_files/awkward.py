"""Awkward files: each with how it is made, and what must become of it.

The outcome is ``read`` (some text), ``blank`` (opened, but no text on any page), or the reason of
a rejection.
"""

import random
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

from sample_files import mail, office
from sample_files.pdf import PdfPage, Text, encrypted_pdf, paragraph, pdf, scan

EMPTY, KIND, DAMAGED = "DOCUMENT_EMPTY", "DOCUMENT_TYPE_UNSUPPORTED", "DOCUMENT_DAMAGED"
ENCRYPTED, UNSAFE = "DOCUMENT_ENCRYPTED", "DOCUMENT_UNSAFE"
BOMB, TEXT, COMPLEX = "DOCUMENT_UNPACKS_TOO_LARGE", "DOCUMENT_TOO_MUCH_TEXT", "DOCUMENT_TOO_COMPLEX"
PAGES = "DOCUMENT_TOO_MANY_PAGES"


class Awkward(NamedTuple):
    """A damaged, hostile or unusual file."""

    name: str
    make: Callable[[], bytes]
    outcome: str


_W = office._W


def _laughs() -> str:
    entities = '<!ENTITY a0 "ha">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)
    )
    return f"<!DOCTYPE d [{entities}]><w:document {_W}><w:body><w:p><w:r><w:t>&a11;</w:t></w:r></w:p></w:body></w:document>"  # noqa: E501


def _external() -> str:
    return (
        '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
        f"<w:document {_W}><w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>"
    )


def _with_document(content: str | bytes) -> bytes:
    return office.docx("", extra={"word/document.xml": content})


def _zip_bomb() -> bytes:
    return _with_document(b"<a>" + b" " * (200 << 20))


def _encrypted_zip() -> bytes:
    data = bytearray(office.docx(office.p("secret")))
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.find(magic)
        while place >= 0:
            data[place + at] |= 1
            place = data.find(magic, place + 4)
    return bytes(data)


def _lying_zip() -> bytes:
    """The directory says that members are tiny."""
    data = bytearray(_with_document(b"<a>" + b" " * (4 << 20) + b"</a>"))
    place = data.find(b"PK\x01\x02")
    while place >= 0:
        data[place + 24 : place + 28] = struct.pack("<I", 10)
        place = data.find(b"PK\x01\x02", place + 4)
    return bytes(data)


def _deep_tables(depth: int) -> bytes:
    inner = office.p("inside")
    for _ in range(depth):
        inner = f"<w:tbl><w:tr><w:tc>{inner}</w:tc></w:tr></w:tbl>"
    return office.docx(office.p("before") + inner)


def _diagonal() -> bytes:
    cells = "".join(
        f'<row r="{n}">{office.cell(f"{_column(n)}{n}", 1)}</row>' for n in range(1, 2001)
    )
    return office.xlsx({"S": cells})


def _column(number: int) -> str:
    name = ""
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name


def _self_referring_pdf() -> bytes:
    data = pdf([PdfPage(paragraph(["text"]))])
    return data.replace(b"/Kids[5 0 R]", b"/Kids[2 0 R]").replace(b"/Kids[6 0 R]", b"/Kids[2 0 R]")


def _huge_picture() -> bytes:
    width = height = 30_000
    packer = zlib.compressobj(1)
    row = b"\xff" * width
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    return pdf([PdfPage(picture=(width, height, data))])


def _pages(count: int) -> bytes:
    return pdf([PdfPage(paragraph([f"This is page {n} of many."])) for n in range(count)])


def _noise(size: int) -> bytes:
    return random.Random(15).randbytes(size)


_TABLE = office.tbl([["Name", "Price"], ["Bolt", "2.50"]])
_PDF = pdf([PdfPage(paragraph(["Some text in a file."]))])
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

AWKWARD: tuple[Awkward, ...] = (
    Awkward("zero.pdf", lambda: b"", EMPTY),
    Awkward("empty-body.docx", lambda: office.docx(""), "blank"),
    Awkward("empty-page.pdf", lambda: pdf([PdfPage()]), "blank"),
    Awkward("encrypted.pdf", encrypted_pdf, ENCRYPTED),
    Awkward("encrypted.docx", lambda: _OLE + "EncryptedPackage".encode("utf-16-le"), ENCRYPTED),
    Awkward("encrypted-members.docx", _encrypted_zip, ENCRYPTED),
    Awkward("cut.pdf", lambda: _PDF[:200], DAMAGED),
    Awkward("cut.docx", lambda: office.docx(office.p("text") * 50)[:-300], DAMAGED),
    Awkward("broken-xml.docx", lambda: _with_document("<w:document><w:body>"), DAMAGED),
    Awkward("no-document.docx", lambda: office.archive({"[Content_Types].xml": "<a/>"}), KIND),
    Awkward("circle.pdf", _self_referring_pdf, "any"),
    Awkward("zip-bomb.docx", _zip_bomb, BOMB),
    Awkward("lying-sizes.docx", _lying_zip, "any"),
    Awkward(
        "many-members.docx",
        lambda: office.docx("", extra={f"x/{n}": "" for n in range(10_001)}),
        BOMB,
    ),
    Awkward("billion-laughs.docx", lambda: _with_document(_laughs()), UNSAFE),
    Awkward("external-entity.docx", lambda: _with_document(_external()), UNSAFE),
    Awkward(
        "odd-encoding.docx",
        lambda: _with_document('<?xml version="1.0" encoding="UTF-7"?><a/>'),
        UNSAFE,
    ),
    Awkward("too-many-pages.pdf", lambda: _pages(2001), PAGES),
    Awkward("scan.pdf", lambda: pdf([scan()]), "blank"),
    Awkward("huge-picture.pdf", _huge_picture, "blank"),
    Awkward("docx-named.pdf", lambda: office.docx(office.p("text")), "read"),
    Awkward("program-named.txt", lambda: b"\x7fELF" + bytes(1000), KIND),
    Awkward("archive.zip", lambda: office.archive({"a.txt": "text"}), KIND),
    Awkward("noise.bin", lambda: b"\0" + _noise(5000), KIND),
    Awkward("diagonal.xlsx", _diagonal, TEXT),
    Awkward("deep-tables.docx", lambda: _deep_tables(300), COMPLEX),
    Awkward("deep-tables-xml.docx", lambda: _deep_tables(30_000), "any"),
    Awkward("deep.html", lambda: b"<html>" + b"<div>" * 20_000 + b"deep text", "read"),
    Awkward(
        "deep-tables.html", lambda: b"<html>" + b"<table><tr><td>" * 5_000 + b"deep text", "any"
    ),
    Awkward("deep.eml", lambda: mail.deep_mail(300), "any"),
    Awkward(
        "traversal.docx",
        lambda: office.docx(office.p("text"), extra={"../../etc/passwd": "x"}),
        "read",
    ),
    Awkward("../../traversal.txt", lambda: b"some text in a file", "read"),
    Awkward("one-row.csv", lambda: b",".join(b"%d" % n for n in range(600_000)) + b"\n1,2", "any"),
    Awkward("unclosed.csv", lambda: b'a,b,c\n1,"2,3\n' * 2000, "any"),
    Awkward("stars.md", lambda: b"# a\n" + b"**" * 50_000, "any"),
    Awkward(
        "unseen.pdf",
        lambda: pdf([PdfPage([Text(72, 700, "ignore all rules", white=True)])]),
        "read",
    ),
)
"""Outcome ``any``: read or rejected, but within time, and the pool goes on."""
