"""HTML: what a browser would show, without running or fetching anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from selectolax.lexbor import LexborHTMLParser

from bos_documents.parsing.blocks import Block, DocumentInfo
from bos_documents.parsing.building import Blocks
from bos_documents.parsing.detect import HTML
from bos_documents.parsing.formats.plain import notes_of
from bos_documents.parsing.formats.source import OnePage
from bos_documents.parsing.rejections import DocumentRejected
from bos_documents.parsing.text import clean, date_of, decode, one_line, title_of

if TYPE_CHECKING:
    from selectolax.lexbor import LexborNode

    from bos_documents.parsing.limits import ParsingLimits
    from bos_encodings import TextReading

_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([A-Za-z0-9_-]{2,30})""", re.IGNORECASE
)
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?:\.0+)?\s*(?:;|$)",
    re.IGNORECASE,
)
_SKIPPED = {
    "script", "style", "template", "noscript", "head", "iframe", "object", "embed", "svg", "canvas",
    "audio", "video", "math", "select", "datalist", "textarea", "noframes", "map",
}  # fmt: skip
_BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dialog", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hr", "html", "li",
    "main", "nav", "ol", "p", "pre", "section", "summary", "ul", "h1", "h2", "h3", "h4", "h5", "h6",
    "caption",
}  # fmt: skip


def open_html(data: bytes, limits: ParsingLimits) -> OnePage:
    """A page of HTML."""
    reading = html_text(data)
    tree = LexborHTMLParser(reading.text)
    blocks, hidden = _blocks(tree, limits)
    title = tree.css_first("title")
    notes = notes_of(reading)
    notes += ("Hidden parts of the page are left out.",) if hidden else ()
    date = ""
    for name in ("article:modified_time", "article:published_time", "date", "dcterms.date"):
        node = tree.css_first(f'meta[property="{name}"], meta[name="{name}"]')
        date = date or (date_of(node.attributes.get("content")) if node is not None else "")
    info = DocumentInfo(
        HTML, 1, title_of(title.text()) if title is not None else "", date, notes=notes
    )
    return OnePage(info, blocks)


def html_blocks(html: str, limits: ParsingLimits) -> tuple[list[Block], bool]:
    """Blocks of a page of HTML, and whether something hidden was left out."""
    return _blocks(LexborHTMLParser(html), limits)


def html_text(data: bytes) -> TextReading:
    """``data`` in the encoding that the page names, else the one that fits."""
    named = _CHARSET.search(data[:4096])
    return decode(data, named.group(1).decode("ascii") if named else "")


def _blocks(tree: LexborHTMLParser, limits: ParsingLimits) -> tuple[list[Block], bool]:
    reader = _Reader(limits)
    if tree.body is not None:
        reader.walk(tree.body)
    reader.flush()
    return reader.blocks.done, reader.hidden


class _Reader:
    """Walks the tree without recursion: documents nest as deep as they like."""

    def __init__(self, limits: ParsingLimits) -> None:
        self.blocks = Blocks(limits)
        self.hidden = False
        self._text: list[str] = []
        self._kind = ""

    def walk(self, top: LexborNode) -> None:
        # (node, whether it was entered)
        waiting: list[tuple[LexborNode, bool]] = [(top, False)]
        kinds: list[str] = []
        while waiting:
            node, entered = waiting.pop()
            tag = node.tag or ""
            if entered:
                self.flush()
                self._kind = kinds.pop()
                continue
            if node.is_text_node:
                self._text.append(node.text_content or "")
                continue
            if tag == "br":
                self._text.append("\n")
            if not node.is_element_node or self._skips(node, tag):
                continue
            if tag == "table":
                self._table(node)
                continue
            if tag in _BLOCKS:
                self.flush()
                kinds.append(self._kind)
                self._kind = (
                    tag
                    if tag in ("li", "pre") or (tag[0] == "h" and tag[1:].isdigit())
                    else self._kind
                )
                waiting.append((node, True))
            children = _children(node)
            if len(waiting) + len(children) > 2_000_000:
                raise DocumentRejected("DOCUMENT_TOO_COMPLEX")
            waiting.extend((child, False) for child in reversed(children))

    def flush(self) -> None:
        raw = "".join(self._text)
        self._text = []
        text = clean(raw) if self._kind == "pre" else _flow(raw)
        if not text:
            return
        if self._kind[:1] == "h" and self._kind[1:].isdigit():
            self.blocks.heading(text, int(self._kind[1:]))
        elif self._kind == "li":
            self.blocks.item(text)
        else:
            self.blocks.paragraph(text)

    def _skips(self, node: LexborNode, tag: str) -> bool:
        if tag in _SKIPPED:
            return True
        attributes = node.attributes
        style = attributes.get("style") or ""
        if "hidden" in attributes or (style and _HIDDEN_STYLE.search(style)):
            self.hidden = True
            return True
        return False

    def _table(self, table: LexborNode) -> None:
        self.flush()
        rows: list[list[str]] = []
        header = 0
        for row, in_head in _rows(table):
            cells = [cell for cell in _children(row) if cell.tag in ("td", "th")]
            texts: list[str] = []
            for cell in cells:
                texts.append(self._cell(cell))
                texts.extend([""] * (min(_span(cell), 200) - 1))
            if not any(texts):
                continue
            if header == len(rows) and (in_head or all(cell.tag == "th" for cell in cells)):
                header += 1
            rows.append(texts)
        if len(rows) == 1 or all(len(row) == 1 for row in rows):
            for cells_of_row in rows:  # a table for layout alone
                self.blocks.paragraph(" ".join(cell for cell in cells_of_row if cell))
            return
        self.blocks.table(rows, header or None)

    def _cell(self, cell: LexborNode) -> str:
        """Text of a cell; cells of tables in it are divided by bars, their rows by semicolons."""
        parts: list[str] = []
        waiting = list(reversed(_children(cell)))
        while waiting:
            node = waiting.pop()
            tag = node.tag or ""
            if node.is_text_node:
                parts.append(node.text_content or "")
            elif node.is_element_node and not self._skips(node, tag):
                if tag in _BLOCKS or tag == "br":
                    parts.append(" ")
                elif tag == "tr":
                    parts.append("; ")
                elif tag in ("td", "th"):
                    parts.append(" | ")
                waiting.extend(reversed(_children(node)))
        text = one_line("".join(parts))
        return re.sub(
            r"(?:^|; )(?: ?\| )", lambda found: "; " if found.start() else "", text
        ).strip("; ")


def _rows(table: LexborNode) -> list[tuple[LexborNode, bool]]:
    found = []
    for child in _children(table):
        if child.tag == "tr":
            found.append((child, False))
        elif child.tag in ("thead", "tbody", "tfoot"):
            found += [(row, child.tag == "thead") for row in _children(child) if row.tag == "tr"]
    return found


def _span(cell: LexborNode) -> int:
    value = cell.attributes.get("colspan") or "1"
    return (
        int(value) if value.isascii() and value.isdigit() and len(value) < 5 and int(value) else 1
    )


def _children(node: LexborNode) -> list[LexborNode]:
    found = []
    child = node.child
    while child is not None:
        found.append(child)
        child = child.next
    return found


def _flow(text: str) -> str:
    return " ".join(clean(text).split())
