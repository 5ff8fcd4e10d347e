"""Gives up root for good, then becomes another program; a script of its own, run by root.

    python drop_root.py '{"uid": 65534, "closed": ["/root"], "shown": ["/root/…/python3"]}' program

Folders that only their owner may enter (``closed``) are replaced by ones that all users may enter,
and in which nothing is but ``shown``. This happens in a mount namespace of this process: other
processes do not see it, permissions on disk are not changed, and it ends with the last process.

There is no process in between that would have to pass on the death of the service: the program that
this one becomes is the service's own child.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000


def main(arguments: list[str]) -> None:
    """Do it all.

    Args:
        arguments: What to do, as JSON; then the program and its arguments.
    """
    plan = json.loads(arguments[0])
    if plan["closed"]:
        _open_up(plan["closed"], plan["shown"])
    os.setgroups([])
    os.setresgid(plan["uid"], plan["uid"], plan["uid"])
    os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    os.execv(arguments[1], arguments[1:])  # noqa: S606 - no shell is what is wanted


def _open_up(closed: list[str], shown: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS), "unshare")
    _mount(libc, "none", "/", None, _MS_REC | _MS_SLAVE)
    # Opened before they are covered: a descriptor leads there all the same.
    sources = {path: os.open(path, os.O_PATH) for path in shown}
    for folder in closed:
        _mount(libc, "tmpfs", folder, "tmpfs", 0, "mode=755,size=64k")
    for path, source in sources.items():
        link = f"/proc/self/fd/{source}"
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if os.path.isdir(link):
            os.makedirs(path, exist_ok=True)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        _mount(libc, link, path, None, _MS_BIND | _MS_REC)
        os.close(source)


def _mount(
    libc: ctypes.CDLL, source: str, target: str, kind: str | None, flags: int, data: str = ""
) -> None:
    words = (source.encode(), os.fsencode(target), kind.encode() if kind else None)
    _check(libc.mount(*words, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


if __name__ == "__main__":
    os.umask(0o022)
    main(sys.argv[1:])
