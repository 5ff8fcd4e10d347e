"""Text of pages that are pictures, by the program ``tesseract`` where it is installed."""

from __future__ import annotations

import ctypes
import signal
import subprocess

from bos_documents.parsing.limits import ParsingLimits
from bos_documents.parsing.text import join_lines

_PR_SET_PDEATHSIG = 1
_MAX_OUTPUT = 2_000_000
_LIBC = ctypes.CDLL(None)


def recognise(width: int, height: int, grey: bytes, limits: ParsingLimits) -> list[str] | None:
    """Paragraphs in a picture of ``width`` times ``height`` grey pixels, or None if it failed.

    The picture goes in and the text comes out by pipes: the worker can write no file.
    """
    picture = b"P5\n%d %d\n255\n" % (width, height) + grey
    command = [limits.ocr_program, "stdin", "stdout", "-l", limits.ocr_languages, "--psm", "3"]
    try:
        done = subprocess.run(  # noqa: S603 - the operator's program, without a shell
            command,
            input=picture,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limits.ocr_page_s,
            check=False,
            env={"OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8"},
            preexec_fn=_end_with_parent,
        )
    except (OSError, subprocess.TimeoutExpired, MemoryError):
        return None
    if done.returncode != 0:
        return None
    text = done.stdout[:_MAX_OUTPUT].decode("utf-8", "replace").replace("\f", "\n")
    found = (join_lines(part.split("\n")) for part in text.split("\n\n"))
    return [paragraph for paragraph in found if paragraph]


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
