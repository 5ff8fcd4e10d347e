"""Text and Markdown as a tree of blocks, which the template draws. Pure.

Nothing of a text is ever part of the template's code: the tree is data, and its texts are drawn as
they are. HTML in Markdown is text like any other; images are their descriptions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

Block = dict[str, Any]
Span = dict[str, Any]

_MAX_DEPTH: Final = 8
_MAX_CELLS: Final = 20_000
_BREAKS_AND_JOINERS: Final = "\u00ad\u200b\u200c\u200d"
_LINKED: Final = ("http://", "https://", "mailto:")


def text_blocks(text: str) -> list[Block]:
    """Paragraphs of a plain text, with its line breaks."""
    return [
        {"kind": "paragraph", "spans": [_text(part)]}
        for part in visible(text).split("\n\n")
        if part.strip()
    ]


def markdown_blocks(text: str) -> list[Block]:
    """Blocks of a Markdown text: CommonMark with tables and strikethrough."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 40})
    parser.enable(["table", "strikethrough"])
    return _blocks(SyntaxTreeNode(parser.parse(visible(text))).children, 0)


def visible(text: str) -> str:
    """``text`` without characters that no font draws; line ends as line feeds."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    return "".join(c for c in lines if c == "\n" or _is_drawn(c))


def _is_drawn(character: str) -> bool:
    # Emoji, and the marks that choose between two looks of them, are in none of the fonts.
    if "\U0001f000" <= character <= "\U0001faff" or "\ufe00" <= character <= "\ufe0f":
        return False
    return character.isprintable() or character in _BREAKS_AND_JOINERS


def _blocks(nodes: Iterable[SyntaxTreeNode], depth: int) -> list[Block]:
    found: list[Block] = []
    for node in nodes:
        if depth > _MAX_DEPTH:
            found.append({"kind": "paragraph", "spans": [_text(_plain(node))]})
        elif (block := _block(node, depth)) is not None:
            found.append(block)
    return found


def _block(node: SyntaxTreeNode, depth: int) -> Block | None:
    match node.type:
        case "heading":
            return {"kind": "heading", "level": int(node.tag[1]), "spans": _inline(node)}
        case "paragraph":
            return {"kind": "paragraph", "spans": _inline(node)}
        case "bullet_list" | "ordered_list":
            start = node.attrs.get("start", 1)
            return {
                "kind": "list" if node.type == "bullet_list" else "enum",
                "start": start if isinstance(start, int) else 1,
                "items": [_blocks(item.children, depth + 1) for item in node.children],
            }
        case "blockquote":
            return {"kind": "quote", "blocks": _blocks(node.children, depth + 1)}
        case "fence" | "code_block":
            return {"kind": "code", "text": node.content.rstrip("\n")}
        case "hr":
            return {"kind": "rule"}
        case "table":
            return _table(node)
        case _:
            return {"kind": "paragraph", "spans": [_text(_plain(node))]}


def _table(node: SyntaxTreeNode) -> Block | None:
    rows = [row for part in node.children for row in part.children]
    width = len(rows[0].children) if rows else 0
    if not width:
        return None
    if len(rows) * width > _MAX_CELLS:
        rows = rows[: max(1, _MAX_CELLS // width)]
    return {
        "kind": "table",
        "aligned": [_alignment(cell) for cell in rows[0].children],
        "head": [_inline(cell) for cell in rows[0].children],
        "rows": [[_inline(cell) for cell in row.children] for row in rows[1:]],
    }


def _alignment(cell: SyntaxTreeNode) -> str:
    style = str(cell.attrs.get("style", ""))
    return next((each for each in ("right", "center") if each in style), "left")


def _inline(node: SyntaxTreeNode) -> list[Span]:
    return [span for child in node.children for span in _spans(child, frozenset(), "")]


def _spans(node: SyntaxTreeNode, style: frozenset[str], link: str) -> list[Span]:
    match node.type:
        case "inline":
            return [span for child in node.children for span in _spans(child, style, link)]
        case "text" | "html_inline":
            return [_text(node.content, style, link)] if node.content else []
        case "code_inline":
            return [_text(node.content, style | {"code"}, link)]
        case "softbreak":
            return [_text(" ", style, link)]
        case "hardbreak":
            return [_text("\n", style, link)]
        case "strong" | "em" | "s":
            inner = style | {node.type}
            return [span for child in node.children for span in _spans(child, inner, link)]
        case "link":
            href = str(node.attrs.get("href", ""))
            target = href if href.lower().startswith(_LINKED) else ""
            return [span for child in node.children for span in _spans(child, style, target)]
        case "image":
            return [_text(node.content or "image", style | {"em"}, link)]
        case _:
            return [_text(_plain(node), style, link)]


def _text(text: str, style: frozenset[str] = frozenset(), link: str = "") -> Span:
    return {"text": text, "style": sorted(style), "link": link}


def _plain(node: SyntaxTreeNode) -> str:
    if not node.children:
        return str(node.content) if node.type != "root" else ""
    return " ".join(filter(None, (_plain(child) for child in node.children)))
