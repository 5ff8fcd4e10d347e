"""Which files `bos documents add` uploads, of the files and folders that it is given."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ENDINGS = frozenset(
    {".pdf", ".docx", ".pptx", ".xlsx", ".csv", ".tsv", ".md", ".markdown", ".txt"}
    | {".html", ".htm", ".xhtml", ".eml"}
)
"""Of files in folders; a file that is named itself is uploaded with any ending."""
MAX_FILES = 10_000


class TooManyFiles(Exception):
    """The folders hold more files than one command uploads."""


@dataclass(slots=True)
class Selection:
    """Files to upload, in the order of the arguments, each once."""

    files: list[Path] = field(default_factory=list)
    passed_over: int = 0
    """Files in folders that are links, or of another kind."""


def selected(arguments: Sequence[Path]) -> Selection:
    """The files of ``arguments``; those of folders sorted, links in them not followed.

    Raises:
        TooManyFiles: more than :data:`MAX_FILES`.
    """
    found: dict[Path, None] = {}
    selection = Selection()
    for argument in arguments:
        if not argument.is_dir():
            found[argument] = None
        for path in _below(argument):
            if path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink():
                found[path] = None
            else:
                selection.passed_over += 1
            if len(found) + selection.passed_over > MAX_FILES:
                raise TooManyFiles
    selection.files = list(found)
    return selection


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))
