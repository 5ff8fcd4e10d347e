"""Chunks of a document by its structure: sections, paragraphs, tables."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bos_documents.chunking.chunks import ChunkKind, TextChunk
from bos_documents.chunking.sections import PlacedBlock, Section, document_text, sections
from bos_documents.chunking.splitting import split_span
from bos_documents.parsing.blocks import BlockKind, Page

TokenCounter = Callable[[str], int]
"""Tokens of a text, without those that a model adds at its ends."""

_MAX_CHARS_PER_TOKEN: Final = 8
_MIN_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Sizes of chunks in tokens.

    Raises:
        ValueError: the target is below 16 or above the maximum.
    """

    target_tokens: int = 384
    """Paragraphs are joined up to it."""
    max_tokens: int = 1024
    """Never exceeded."""

    def __post_init__(self) -> None:
        if not _MIN_TOKENS <= self.target_tokens <= self.max_tokens:
            raise ValueError("target_tokens must be from 16 to max_tokens")

    @property
    def max_chars(self) -> int:
        """Bound of text that counts as few tokens, such as a line without spaces."""
        return self.max_tokens * _MAX_CHARS_PER_TOKEN


@dataclass(frozen=True, slots=True)
class _Piece:
    """A span that is not cut any further."""

    start: int
    end: int
    tokens: int
    page: int
    recognised: bool
    heading: bool = False


def chunk_pages(
    document_id: uuid.UUID,
    pages: Sequence[Page],
    count: TokenCounter,
    limits: ChunkLimits | None = None,
) -> list[TextChunk]:
    """Chunks of a document in reading order.

    Chunks do not cross sections. A paragraph is cut only if it is longer than ``max_tokens``. A
    table is a chunk of its own, together with the headings directly above it; one longer than
    ``max_tokens`` is split by rows, with its header repeated.

    Args:
        document_id: Namespace of the chunk ids.
        pages: All pages, in order.
        count: The tokenizer of the embedding model.
        limits: Sizes; None: the defaults.
    """
    builder = _Builder(document_id, document_text(pages), count, limits or ChunkLimits())
    for section in sections(pages):
        builder.add(section)
    return builder.chunks


@dataclass(slots=True)
class _Builder:
    document_id: uuid.UUID
    text: str
    count: TokenCounter
    limits: ChunkLimits
    chunks: list[TextChunk] = field(default_factory=list)
    _occurrences: dict[bytes, int] = field(default_factory=dict)
    _path: tuple[str, ...] = ()
    _parent: str | None = None

    def add(self, section: Section) -> None:
        self._path, self._parent = section.path, None
        run: list[_Piece] = []
        tokens = 0
        for placed in section.blocks:
            if placed.block.kind is BlockKind.TABLE:
                caption = run if run and run[-1].heading else []
                if not caption:
                    self._emit_text(run)
                self._add_table(placed, caption)
                run, tokens = [], 0
                continue
            for piece in self._pieces(placed):
                if run and self._is_full(run, tokens, piece):
                    self._emit_text(run)
                    run, tokens = [], 0
                run.append(piece)
                tokens += piece.tokens
        self._emit_text(run)

    def _is_full(self, run: list[_Piece], tokens: int, piece: _Piece) -> bool:
        """Whether ``piece`` begins another chunk. A heading stays with what it is above."""
        limit = self.limits.max_tokens if run[-1].heading else self.limits.target_tokens
        too_long = piece.end - run[0].start > self.limits.max_chars
        return too_long or tokens + piece.tokens > limit

    def _pieces(self, placed: PlacedBlock) -> list[_Piece]:
        """The block whole, unless it is longer than a chunk."""
        limits, start, end = self.limits, placed.start, placed.end
        heading = placed.block.kind is BlockKind.HEADING
        if end - start <= limits.max_chars:
            tokens = self.count(self.text[start:end])
            if tokens <= limits.max_tokens:
                return [_Piece(start, end, tokens, placed.page, placed.recognised, heading)]
        spans = split_span(
            self.text,
            start,
            end,
            count=self.count,
            limit=limits.target_tokens,
            max_chars=limits.max_chars,
        )
        return [
            _Piece(a, b, self.count(self.text[a:b]), placed.page, placed.recognised, heading)
            for a, b in spans
        ]

    def _emit_text(self, run: Sequence[_Piece]) -> None:
        if not run:
            return
        text = self.text[run[0].start : run[-1].end]
        tokens = self.count(text)
        # Counts of parts need not add up to the count of the whole.
        if tokens > self.limits.max_tokens and len(run) > 1:
            middle = len(run) // 2
            self._emit_text(run[:middle])
            self._emit_text(run[middle:])
            return
        self._emit(run, text, tokens, ChunkKind.TEXT)

    def _add_table(self, placed: PlacedBlock, caption: Sequence[_Piece]) -> None:
        limits = self.limits
        start = caption[0].start if caption else placed.start
        if placed.end - start <= limits.max_chars:
            text = self.text[start : placed.end]
            tokens = self.count(text)
            if tokens <= limits.max_tokens:
                whole = _Piece(placed.start, placed.end, tokens, placed.page, placed.recognised)
                self._emit([*caption, whole], text, tokens, ChunkKind.TABLE)
                return
        self._emit_text(caption)
        rows = _row_spans(placed)
        header = self._header(rows[: placed.block.header_rows])
        group: list[_Piece] = []
        size = 0
        first = True
        for a, b in rows:
            for piece in self._row_pieces(a, b, placed, header):
                added = size + piece.tokens
                if group and (
                    added > limits.target_tokens or piece.end - group[0].start > limits.max_chars
                ):
                    self._emit_rows(group, header, first=first)
                    group, size, first = [], 0, False
                if not group and not first:
                    size = self.count(header) if header else 0
                group.append(piece)
                size += piece.tokens
        if group:
            self._emit_rows(group, header, first=first)

    def _header(self, rows: Sequence[tuple[int, int]]) -> str:
        """The table's header if it leaves room for rows, else nothing."""
        if not rows:
            return ""
        a, b = rows[0][0], rows[-1][1]
        if b - a > self.limits.max_chars // 4:
            return ""
        header = self.text[a:b].strip()
        return header + "\n" if self.count(header) <= self.limits.target_tokens // 2 else ""

    def _row_pieces(self, a: int, b: int, placed: PlacedBlock, header: str) -> list[_Piece]:
        limits = self.limits

        def with_header(text: str) -> int:
            return self.count(header + text)

        if b - a <= limits.max_chars - len(header):
            tokens = self.count(self.text[a:b])
            if tokens <= limits.target_tokens or with_header(self.text[a:b]) <= limits.max_tokens:
                return [_Piece(a, b, tokens, placed.page, placed.recognised)]
        spans = split_span(
            self.text,
            a,
            b,
            count=with_header,
            limit=limits.target_tokens,
            max_chars=limits.max_chars - len(header),
        )
        return [
            _Piece(x, y, self.count(self.text[x:y]), placed.page, placed.recognised)
            for x, y in spans
        ]

    def _emit_rows(self, group: Sequence[_Piece], header: str, *, first: bool) -> None:
        """Rows of a table; ``first``: the header itself is among them."""
        text = self.text[group[0].start : group[-1].end]
        shown = text if first else header + text
        tokens = self.count(shown)
        if tokens > self.limits.max_tokens:
            if len(group) > 1:
                middle = len(group) // 2
                self._emit_rows(group[:middle], header, first=first)
                self._emit_rows(group[middle:], header, first=False)
                return
            shown, tokens = text, self.count(text)
        self._emit(group, shown, tokens, ChunkKind.TABLE)

    def _emit(self, run: Sequence[_Piece], text: str, tokens: int, kind: ChunkKind) -> None:
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        occurrence = self._occurrences.get(digest, 0)
        self._occurrences[digest] = occurrence + 1
        chunk_id = str(uuid.uuid5(self.document_id, f"{digest.hex()}:{occurrence}"))
        self.chunks.append(
            TextChunk(
                chunk_id=chunk_id,
                ordinal=len(self.chunks),
                text=text,
                kind=kind,
                tokens=tokens,
                first_page=run[0].page,
                last_page=run[-1].page,
                section_path=self._path,
                start_char=run[0].start,
                end_char=run[-1].end,
                parent_chunk_id=self._parent,
                recognised=any(piece.recognised for piece in run),
            )
        )
        if self._parent is None:
            self._parent = chunk_id


def _row_spans(placed: PlacedBlock) -> list[tuple[int, int]]:
    """Spans of the rows; of the lines of the text where that is not made of the rows."""
    lines = [" | ".join(row) for row in placed.block.rows]
    if "\n".join(lines) != placed.block.text:
        lines = placed.block.text.split("\n")
    spans = []
    start = placed.start
    for line in lines:
        if line.strip():
            spans.append((start, start + len(line)))
        start += len(line) + 1
    return spans
