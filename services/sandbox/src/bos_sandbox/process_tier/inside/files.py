"""Files of a program: open figures become images, files of its folder are read.

All of this happens inside the isolation, with the rights of the program: by names, links and
special files it reaches only its own folder.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
import sys
from typing import Any

_SAVED = "_bos_saved"
_MAX_SCANNED = 2_000
_MAX_PROBLEMS = 20


def prepare_figures() -> None:
    """Import matplotlib for a program that will, and notice which figures it saves by itself."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt  # noqa: F401 - only imported
    from matplotlib.figure import Figure

    plain = Figure.savefig

    @functools.wraps(plain)
    def savefig(self: Any, fname: Any, *arguments: Any, **options: Any) -> Any:
        saved = plain(self, fname, *arguments, **options)
        if isinstance(fname, str | os.PathLike):
            setattr(self, _SAVED, True)
        return saved

    Figure.savefig = savefig  # type: ignore[method-assign]


def save_figures(folder: str) -> list[str]:
    """Save figures that are still open and that the program did not save; returns problems."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    problems = []
    for position, number in enumerate(pyplot.get_fignums(), 1):
        figure = pyplot.figure(number)
        path = os.path.join(folder, f"figure-{position}.png")
        if hasattr(figure, _SAVED) or os.path.lexists(path):
            continue
        try:
            figure.savefig(path)
        except Exception as error:
            problems.append(f"Figure {position} could not be saved: {type(error).__name__}.")
    return problems[:_MAX_PROBLEMS]


def collect(folder: str, limits: dict[str, int]) -> tuple[list[tuple[str, bytes]], list[str]]:
    """Regular files in ``folder`` by name, and in sentences what was left out.

    Hidden files, links, FIFOs, sockets and devices are no files; folders are not looked into.

    Args:
        folder: Where to look.
        limits: ``count`` of files, ``each`` and ``total`` bytes.
    """
    found: list[tuple[str, bytes]] = []
    problems: list[str] = []
    left, more = limits["total"], 0
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in _names(directory, problems):
            if len(found) >= limits["count"]:
                more += 1
                continue
            content = _read(directory, name, min(limits["each"], left))
            if content is None:
                continue
            if isinstance(content, str):
                problems.append(f"{_shown(name)} was left out: {content}.")
                continue
            left -= len(content)
            found.append((name, content))
    finally:
        os.close(directory)
    if more:
        problems.append(f"{more} more files were left out: {limits['count']} can come back.")
    return found, problems[:_MAX_PROBLEMS]


def _names(directory: int, problems: list[str]) -> list[str]:
    names, folders = [], 0
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                folders += 1
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
            if len(names) >= _MAX_SCANNED:
                break
    if folders:
        problems.append("What lies in folders was left out: only files outside of them come back.")
    return sorted(names)


def _read(directory: int, name: str, most: int) -> bytes | str | None:
    """The file's bytes, why it is left out, or None if it is no file any more."""
    # Without waiting for a writer, in case it has become a FIFO by now.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=directory)
    except OSError as error:
        return "it cannot be read" if error.errno == errno.EACCES else None
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            return None
        if about.st_size > most:
            return "it is too large"
        content = bytearray()
        while len(content) <= most:
            chunk = os.read(descriptor, min(1 << 20, most + 1 - len(content)))
            if not chunk:
                return bytes(content)
            content += chunk
        return "it is too large"
    finally:
        os.close(descriptor)


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else "_" for c in name[:80])
