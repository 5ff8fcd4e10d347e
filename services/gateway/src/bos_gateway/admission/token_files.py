"""Credentials in files that a request names: one configured folder, nothing outside of it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bos_errors import InvalidArgument, Unavailable

MAX_TOKEN_BYTES: Final = 16 * 1024
_MAX_FILES: Final = 16
_READ_S: Final = 5.0


async def in_token_files(folder: Path | None, names: Mapping[str, str]) -> dict[str, str]:
    """The credentials in files that a request names, by the path in its context.

    Raises:
        InvalidArgument: one of them may not be read, or there are too many.
        Unavailable: the folder does not answer.
    """
    if not names:
        return {}
    if len(names) > _MAX_FILES:
        raise InvalidArgument.field(
            "request.context", f"names more than {_MAX_FILES} files with credentials; name fewer"
        )

    def read() -> dict[str, str]:
        return {path: _read(folder, f"request.{path}", names[path]) for path in sorted(names)}

    try:
        async with asyncio.timeout(_READ_S):
            return await asyncio.to_thread(read)
    except TimeoutError:
        text = "The folder of credential files does not answer; try again shortly."
        raise Unavailable(text, reason="TOKEN_FILES_AWAY", retry_after_s=_READ_S) from None


def _read(folder: Path | None, field: str, name: str) -> str:
    """The credential in the file ``name``, without the white space around it.

    Args:
        folder: The folder that the operator allows; None allows none.
        field: Where the request names the file, for its error.
        name: The file's path, relative to the folder or absolute.

    Raises:
        InvalidArgument: there is no such file that may be read. Which files there are elsewhere,
            no caller learns from it.
    """
    if folder is None:
        raise InvalidArgument.field(
            field,
            "names a file, and no folder is allowed for such files here; send the credential "
            "itself, or have BOS_GATEWAY_TOKEN_FILES_FOLDER set",
        )
    content = _content(folder, name)
    if content is None:
        raise InvalidArgument.field(
            field,
            "names no readable file of at most "
            f"{MAX_TOKEN_BYTES} bytes of text in the folder that is allowed for such files",
        )
    return content


def _content(folder: Path, name: str) -> str | None:
    try:
        root = folder.resolve(strict=True)
        path = (root / name).resolve(strict=True)
        if not path.is_relative_to(root):
            return None
        # What is opened is looked at, and not what had the name a moment ago; a pipe must not
        # hold us up.
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            if Path(f"/proc/self/fd/{opened}").exists():  # a folder on the way may be a link by now
                path = Path(os.readlink(f"/proc/self/fd/{opened}"))
            if not path.is_relative_to(root):
                return None
            content = file.read(MAX_TOKEN_BYTES + 1)
        return content.decode().strip() if 0 < len(content) <= MAX_TOKEN_BYTES else None
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a circle of links
        return None
