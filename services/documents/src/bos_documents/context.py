"""Passages in their context, as they are indexed; pure.

A clause seldom names the other party, and a row of a table seldom says of what: the name of the
document and the headings above it do. So these are embedded and counted with the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import splitext
from typing import Final

VERSION: Final = "context-2"
"""Of what is made here: with another one all documents are indexed anew."""
ENTRIES: Final = 1
"""Points of a document in the index beside its chunks: one, of its description."""
_MAX_CHARS: Final = 300
"""Of name and headings: they must not outweigh the passage."""


def in_context(name: str, section_path: Sequence[str], text: str) -> str:
    """A passage under the name of its document and its headings, a line each.

    Args:
        name: The document's name.
        section_path: Headings, outermost first.
        text: The passage.
    """
    return f"{headings(name, *section_path)}\n{text}"


def headings(name: str, *section_path: str) -> str:
    """What stands above a passage: name of the document and headings, a line each.

    Args:
        name: The document's name; its extension is left out, underscores are spaces.
        section_path: Headings, outermost first.
    """
    title = splitext(name)[0].replace("_", " ")
    lines = [" ".join(line.split()) for line in (title, *section_path)]
    return "\n".join([line for line in lines if line])[:_MAX_CHARS]
