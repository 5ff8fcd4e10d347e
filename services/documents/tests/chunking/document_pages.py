"""Pages of blocks for tests of chunking."""

from bos_documents.parsing.blocks import Block, BlockKind, Page, PageText


def count_words(text: str) -> int:
    return len(text.split())


def heading(text: str, level: int = 1) -> Block:
    return Block(BlockKind.HEADING, text, level)


def paragraph(text: str) -> Block:
    return Block(BlockKind.PARAGRAPH, text)


def words(count: int, prefix: str = "w") -> str:
    return " ".join(f"{prefix}{index}" for index in range(count))


def table(*rows: tuple[str, ...], header_rows: int = 1) -> Block:
    text = "\n".join(" | ".join(row) for row in rows)
    return Block(BlockKind.TABLE, text, rows=rows, header_rows=header_rows)


def page(*blocks: Block, number: int = 1, title: str = "", text: str = "extracted") -> Page:
    return Page(number, blocks, PageText(text), title)
