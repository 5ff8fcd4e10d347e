"""Files of the sample company's documents: the same bytes at every rendering."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
from email.message import EmailMessage
from email.policy import SMTP
from html import escape
from typing import Final

from bos_demo.documents.docx import write_docx
from bos_demo.documents.pdf import write_pdf
from bos_demo.documents.pptx import write_pptx
from bos_demo.documents.sources import Heading, Item, Source, Table
from bos_demo.documents.xlsx import write_xlsx


def render(source: Source) -> bytes:
    """Return the file of a document, in the format that its name ends with.

    Raises:
        KeyError: there is no writer for that ending.
    """
    return _WRITERS[source.format](source)


def _write_markdown(source: Source) -> bytes:
    return source.body.encode()


def _write_html(source: Source) -> bytes:
    inner: list[str] = []
    listed = False
    for block in source.blocks:
        if isinstance(block, Item) is not listed:
            listed = not listed
            inner.append("<ul>" if listed else "</ul>")
        match block:
            case Heading(level, text):
                inner.append(f"<h{level}>{escape(text)}</h{level}>")
            case Item(text):
                inner.append(f"<li>{escape(text)}</li>")
            case Table(rows):
                inner.append(_html_table(rows))
            case _:
                inner.append(f"<p>{escape(block.text)}</p>")
    if listed:
        inner.append("</ul>")
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(source.title)}</title>\n"
        f'<meta name="date" content="{source.day.isoformat()}">\n</head>\n<body>\n'
    )
    return (page + "\n".join(inner) + "\n</body>\n</html>\n").encode()


def _html_table(rows: tuple[tuple[str, ...], ...]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:]
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _write_csv(source: Source) -> bytes:
    """The tables alone; a file of values has no place for prose."""
    out = io.StringIO()
    for block in source.blocks:
        if isinstance(block, Table):
            csv.writer(out).writerows(block.rows)
    return out.getvalue().encode()


def _write_mail(source: Source) -> bytes:
    message = EmailMessage(policy=SMTP)
    message["From"] = source.headers["from"]
    message["To"] = source.headers["to"]
    message["Subject"] = source.title
    message["Date"] = source.day.strftime("%a, %d %b %Y 09:00:00 +0530")
    message["Message-ID"] = f"<{source.day:%Y%m%d}.{len(source.body)}@mail.example>"
    lines = (line.lstrip("#").lstrip() for line in source.body.strip().splitlines())
    message.set_content("\n".join(lines) + "\n", charset="utf-8", cte="quoted-printable")
    return message.as_bytes()


_WRITERS: Final[Mapping[str, Callable[[Source], bytes]]] = {
    "pdf": write_pdf,
    "docx": write_docx,
    "xlsx": write_xlsx,
    "pptx": write_pptx,
    "html": _write_html,
    "md": _write_markdown,
    "csv": _write_csv,
    "eml": _write_mail,
}
