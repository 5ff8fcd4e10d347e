"""Files that ``bos connect`` writes: none is overwritten unless that was asked for."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from bos_errors import FailedPrecondition, InvalidArgument


def refuse_existing(paths: Iterable[Path]) -> None:
    """Check that none of these files exists.

    Raises:
        FailedPrecondition: one does.
    """
    for path in paths:
        if path.exists() or path.is_symlink():
            raise FailedPrecondition(
                f"{path} exists; nothing was written. Use --force to overwrite it, or --out."
            )


def make_folder(path: Path) -> None:
    """Make a folder where there is none.

    Raises:
        InvalidArgument: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be made ({type(error).__name__}).") from None


def write_text(path: Path, text: str, *, overwrite: bool, mode: int = 0o644) -> None:
    """Write a file.

    Raises:
        FailedPrecondition: it exists and may not be overwritten.
        InvalidArgument: it cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if overwrite else os.O_EXCL)
    try:
        with os.fdopen(os.open(path, flags | os.O_NOFOLLOW, mode), "w", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        refuse_existing([path])
        raise
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written ({type(error).__name__}).") from None


def make_password(path: Path) -> None:
    """Write a new random password to a file that its owner alone may read."""
    write_text(path, secrets.token_urlsafe(32), overwrite=False, mode=0o600)
