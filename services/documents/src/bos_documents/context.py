"""Passages in their context, as they are indexed; pure.

A clause seldom names the other party, and a row of a table seldom says of what: the name of the
document and the headings above it do. So these are embedded and counted with the text.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION: Final = "context-1"
"""Of what is made here: with another one all documents are indexed anew."""
_MAX_CHARS: Final = 300
"""Of name and headings: they must not outweigh the passage."""


def in_context(name: str, section_path: Sequence[str], text: str) -> str:
    """A passage under the name of its document and its headings, a line each.

    Args:
        name: The document's name; its extension is left out, underscores are spaces.
        section_path: Headings, outermost first.
        text: The passage.
    """
    title = PurePosixPath(name).stem.replace("_", " ")
    above = "\n".join(" ".join(line.split()) for line in (title, *section_path) if line.strip())
    return f"{above[:_MAX_CHARS]}\n{text}"
