"""Documents and passages as lines. Names are shown with escapes for all that is not seen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bos.documents.v1 import DocumentState
from bos_client.text import passage_text, size_text, time_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from bos.documents.v1 import Document, Passage, SearchDocumentsResponse

_NAME_CHARS = 80
_EXCERPT_CHARS = 300
_TEXT_CHARS = 2000
_MAX_LISTED = 20
_NEAREST = 3
_WORD = re.compile(r"[\w-]{3,}")
_STATES = {
    DocumentState.DOCUMENT_STATE_QUEUED: "waiting",
    DocumentState.DOCUMENT_STATE_PARSING: "reading",
    DocumentState.DOCUMENT_STATE_INDEXING: "indexing",
    DocumentState.DOCUMENT_STATE_READY: "ready",
    DocumentState.DOCUMENT_STATE_FAILED: "failed",
}


def state_text(document: Document) -> str:
    """Such as ``ready``, or ``reading, page 3 of 12``."""
    word = _STATES.get(document.state, "unknown")
    progress = document.progress
    if document.state == DocumentState.DOCUMENT_STATE_PARSING and progress.pages_total:
        return f"{word}, page {progress.pages_parsed} of {progress.pages_total}"
    if document.state == DocumentState.DOCUMENT_STATE_INDEXING and progress.chunks_total:
        return f"{word}, passage {progress.chunks_indexed} of {progress.chunks_total}"
    return word


def failure_text(document: Document) -> str:
    """Why a document failed, and what helps."""
    failure = document.failure
    return f"{passage_text(failure.message, _TEXT_CHARS)} ({visible(failure.reason, _NAME_CHARS)})"


def documents_grid(documents: Iterable[Document]) -> Grid:
    """A table of documents."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    grid.add_column("document", no_wrap=True)
    grid.add_column("state")
    grid.add_column("pages", justify="right")
    grid.add_column("size", justify="right")
    grid.add_column("uploaded (UTC)")
    grid.add_column("name", overflow="fold")
    for each in documents:
        failed = each.state == DocumentState.DOCUMENT_STATE_FAILED
        grid.add_row(
            Text(visible(each.document_id)),
            Text(state_text(each), style="red" if failed else ""),
            str(each.page_count or ""),
            size_text(each.size_bytes),
            time_text(each.create_time),
            Text(visible(each.name, _NAME_CHARS)),
        )
    return grid


def show_document(console: Console, document: Document) -> None:
    """Everything about one document."""
    console.print(Text(visible(document.name), style="bold"))
    console.print(Text(f"  {visible(document.document_id)}", style="dim"))
    pages = document.pages_without_text
    unread = ", ".join(map(str, pages[:_MAX_LISTED]))
    unread += f" and {len(pages) - _MAX_LISTED} more" if len(pages) > _MAX_LISTED else ""
    facts = (
        ("State", state_text(document)),
        ("Failure", failure_text(document) if document.HasField("failure") else ""),
        ("Type", visible(document.document_type, _NAME_CHARS)),
        ("Date", visible(document.document_date, _NAME_CHARS)),
        ("Topics", ", ".join(visible(each, _NAME_CHARS) for each in document.topics)),
        ("Description", passage_text(document.description, _TEXT_CHARS)),
        ("Pages", str(document.page_count or "")),
        ("Without text", f"page {unread}" if unread else ""),
        ("Passages", str(document.chunk_count or "")),
        ("Size", f"{size_text(document.size_bytes)}, {visible(document.media_type)}"),
        ("Digest", visible(document.digest)),
        ("Uploaded", f"{time_text(document.create_time)} UTC"),
    )
    for name, value in facts:
        if value:
            console.print(Text(f"  {name}: {value}"))
    for note in document.notes[:_MAX_LISTED]:
        console.print(Text(f"  Note: {passage_text(note, _TEXT_CHARS)}", style="yellow"))


def show_passages(console: Console, query: str, found: SearchDocumentsResponse) -> None:
    """What a search found, best first."""
    searched = found.documents_searched
    documents = "one document" if searched == 1 else f"{searched} documents"
    if not found.passages:
        console.print(f"nothing found in {documents}")
        return
    for number, passage in enumerate(found.passages, 1):
        console.print(Text(f"{number}. {_place(passage)}", style="bold"))
        text = excerpt(passage.chunk.text, query, _EXCERPT_CHARS)
        console.print(Text(f"   {passage_text(text)}"))
        console.print(Text(f"   {_scores(passage)}", style="dim"))
    if found.documents:
        names = (visible(each.document_name, _NAME_CHARS) for each in found.documents[:_NEAREST])
        console.print(Text(f"documents about it: {', '.join(names)}", style="dim"))
    console.print(Text(f"searched in {documents}", style="dim"))


def excerpt(text: str, query: str, limit: int) -> str:
    """The part of a passage around the first word of the query in it; else its beginning."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    words = [re.escape(word) for word in _WORD.findall(query)]
    hit = re.search("|".join(words), line, re.IGNORECASE) if words else None
    start = max(0, min(hit.start() - limit // 3, len(line) - limit)) if hit else 0
    start = line.find(" ", start) + 1 if start else 0
    end = start + limit
    return f"{'… ' if start else ''}{line[start:end].strip()}{' …' if end < len(line) else ''}"


def _place(passage: Passage) -> str:
    chunk = passage.chunk
    pages = str(chunk.first_page)
    if chunk.last_page > chunk.first_page:
        pages += f"-{chunk.last_page}"
    parts = [
        visible(chunk.document_name, _NAME_CHARS),
        f"page {pages}" if chunk.first_page else "",
        " > ".join(visible(each, _NAME_CHARS) for each in chunk.section_path),
    ]
    return ", ".join(part for part in parts if part)


def _scores(passage: Passage) -> str:
    scores = [f"score {passage.score:.4f}"]
    if passage.HasField("dense_score"):
        scores.append(f"meaning {passage.dense_score:.2f}")
    if passage.HasField("sparse_score"):
        scores.append(f"words {passage.sparse_score:.2f}")
    return f"{', '.join(scores)}, passage {visible(passage.chunk.chunk_id, _NAME_CHARS)}"
