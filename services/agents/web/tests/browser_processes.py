"""Browsers of the agents of one test, as their processes and folders show them.

Each test has a temporary folder of its own, whose path stands in the command lines of its browsers.
"""

import tempfile
from pathlib import Path


def _mark() -> str:
    return str(Path(tempfile.gettempdir(), "bos-browser-"))


def browsers() -> list[str]:
    """Command lines of living processes that belong to browsers of this test's agents."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if _mark() in line:
            found.append(line[:200])
    return found


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob("bos-browser-*"))


def pids(words: str) -> list[int]:
    """Browsers or their supervisors, by words of their command line."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if _mark() in line and words in line and "--type=" not in line:
            found.append(int(each.parent.name))
    return found


def is_supervisor(pid: int) -> bool:
    return b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()


def states(words: str) -> list[str]:
    """The kernel's words about processes of browsers."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().decode("utf-8", "replace")
            if words in line and _mark() in line:
                found.append((each.parent / "status").read_text())
        except OSError:
            continue
    return found
