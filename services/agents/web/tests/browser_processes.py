"""Browsers of the agents of one test, as their processes and folders show them.

Each test has a temporary folder of its own, whose path stands in the command lines of its browsers.
"""

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def _commands() -> Iterator[tuple[Path, str]]:
    """Folders in /proc and command lines of processes of browsers of this test's agents."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(Path(tempfile.gettempdir(), "bos-browser-")) in line:
            yield folder, line


def browsers() -> list[str]:
    """Command lines of living processes that belong to browsers of this test's agents."""
    return [line[:200] for _, line in _commands()]


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("bos-browser-*"))


def pids(words: str) -> list[int]:
    return [int(at.name) for at, line in _commands() if words in line and "--type=" not in line]


def is_supervisor(pid: int) -> bool:
    return b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


def states(words: str) -> list[str]:
    found = []
    for at, line in _commands():
        if words in line:
            with suppress(OSError):
                found.append((at / "status").read_text())
    return found
