"""Files that a program hands back; it chose names and contents, so neither is taken on trust."""

from __future__ import annotations

import unicodedata
from typing import Any

from bos.sandbox.v1 import ProgramFile, RunProgramResponse

_MEDIA_TYPES = {
    "csv": "text/csv",
    "gif": "image/gif",
    "htm": "text/html",
    "html": "text/html",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "json": "application/json",
    "md": "text/markdown",
    "pdf": "application/pdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "webp": "image/webp",
}
_ANY_TYPE = "application/octet-stream"
_UNFIT = frozenset('/\\<>:"|?*\u2044\u2215')
_MAX_NAME_CHARS = 100
_MAX_ENDING_CHARS = 12
_MAX_PROBLEMS = 20
_MAX_PROBLEM_CHARS = 300


def add_files(response: RunProgramResponse, answer: dict[str, Any]) -> None:
    """Put the files of ``answer`` (names and contents, within bounds by now) into the response."""
    used: set[str] = set()
    for name, content in answer.get("files") or ():
        safe = _unique(safe_name(name), used)
        used.add(safe.casefold())
        response.files.append(ProgramFile(name=safe, media_type=media_type(safe), content=content))
    problems = answer.get("file_problems")
    for problem in problems[:_MAX_PROBLEMS] if isinstance(problems, list) else ():
        if isinstance(problem, str):
            text = "".join(c if c.isprintable() else "_" for c in problem[:_MAX_PROBLEM_CHARS])
            response.file_problems.append(text)


def fit_files(response: RunProgramResponse, most: int) -> None:
    """Leave out variables, then files, until the response has at most ``most`` bytes."""
    if response.files and response.ByteSize() > most:
        response.locals.clear()
    while response.files and response.ByteSize() > most:
        name = response.files.pop().name
        response.file_problems.append(f"{name} was left out: the response would be too large.")


def safe_name(name: str) -> str:
    """``name`` as one that no file system, terminal or reader takes for something else.

    What is not printable (line ends, marks that turn the direction of writing, halves of
    characters) and what separates folders, in any of its forms, becomes an underscore.
    """
    text = "".join("_" if _unfit(c) else c for c in unicodedata.normalize("NFC", name))
    text = text.strip(" .")
    stem, dot, ending = text.rpartition(".")
    if not dot or not ending.isalnum() or len(ending) > _MAX_ENDING_CHARS:
        stem, dot, ending = text, "", ""
    stem = stem[: _MAX_NAME_CHARS - len(dot) - len(ending)].strip(" .") or "file"
    # A name in other letters takes up to four bytes for each, still within what file systems bear.
    return f"{_cut_bytes(stem)}{dot}{ending}"


def media_type(name: str) -> str:
    """The media type by the ending of ``name``."""
    return _MEDIA_TYPES.get(name.rpartition(".")[2].lower(), _ANY_TYPE)


def _unfit(character: str) -> bool:
    if not character.isprintable():
        return True
    return not _UNFIT.isdisjoint(unicodedata.normalize("NFKC", character))


def _cut_bytes(stem: str) -> str:
    return stem.encode()[:180].decode(errors="ignore")


def _unique(name: str, used: set[str]) -> str:
    stem, dot, ending = name.rpartition(".")
    if not dot:
        stem, ending = name, ""
    candidate, number = name, 1
    while candidate.casefold() in used:
        number += 1
        candidate = f"{stem}-{number}{dot}{ending}"
    return candidate
