"""Durable file writes: content and folder entry are on disk before the call returns."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

_COPY_BYTES: Final = 1024 * 1024


def write_durably(path: Path, content: bytes) -> None:
    """Write a file that is whole or absent under its name, also after a loss of power.

    Folders on the way are made. A killed writer may leave ``NAME#NUMBER``, which the object
    store does not list.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    _write(path, lambda file: file.write(content))


def copy_durably(path: Path, source: BinaryIO) -> None:
    """Write what ``source`` holds from its present place on, as :func:`write_durably` does.

    Raises:
        OSError: As there.
    """
    _write(path, lambda file: shutil.copyfileobj(source, file, _COPY_BYTES))


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    _make_folders(path.parent)
    partial = path.with_name(f"{path.name}#{secrets.randbits(63)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            fill(file)
            file.flush()
            # Before the name: a rename may reach the disk ahead of what was written.
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _make_folders(folder: Path) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        _sync_folder(each.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
