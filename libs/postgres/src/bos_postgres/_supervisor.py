"""Runs one PostgreSQL program for its owner and sees to it that it never outlives the owner.

Executed as a script (``python -I -S _supervisor.py JOB``), standard library only. JOB is JSON:
``command``, ``environment``, ``access`` (paths the program must be able to use), ``identity``
(``self``, ``user_namespace`` or ``nobody``), ``uid`` and ``gid`` (of ``nobody``), ``keep_fds``,
``remove`` (a folder to delete at the end, or null) and ``grace_s``.

Standard input is the lifeline: when it ends, because the owner closed it or died in any way, the
program gets SIGINT (for PostgreSQL a fast shutdown), after ``grace_s`` SIGQUIT (immediate), after
a few seconds more SIGKILL. If this process is killed too, the kernel sends the program SIGINT.
The exit status is the program's, or 126 when it could not be started as that identity.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import sys
import time
from typing import Any, NoReturn

CANNOT_START = 126
_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
_LAST_RESORT_S = 5.0


def main() -> int:
    spec: dict[str, Any] = json.loads(sys.argv[1])
    # The owner decides when to stop; a signal to the whole process group or control group must
    # not take the database away while the owner still drains.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    own_pid = os.getpid()
    child = os.fork()
    if child == 0:
        _become_program(spec, own_pid)
    try:
        return _supervise(child, wake_read, float(spec["grace_s"]))
    finally:
        if spec["remove"]:
            shutil.rmtree(spec["remove"], ignore_errors=True)


def _become_program(spec: dict[str, Any], parent: int) -> NoReturn:
    """In the child: take the identity, check access, replace this process by the program."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        if spec["identity"] == "user_namespace":
            _enter_user_namespace(spec["uid"], spec["gid"])
        elif spec["identity"] == "nobody":
            os.setgroups([])
            os.setgid(spec["gid"])
            os.setuid(spec["uid"])
        # A change of identity clears the parent-death signal, so it is set after that.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
            if os.getppid() != parent:
                os._exit(CANNOT_START)
        for path in spec["access"]:
            if not os.access(path, os.R_OK | os.X_OK | (os.W_OK if os.path.isdir(path) else 0)):
                raise PermissionError(f"no access to {path}")
        for fd in spec["keep_fds"]:
            os.set_inheritable(fd, True)
        os.umask(0o077)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execve(spec["command"][0], spec["command"], spec["environment"])  # noqa: S606
    except BaseException as error:
        os.write(2, f"cannot start as {spec['identity']}: {error}\n".encode())
    os._exit(CANNOT_START)


def _enter_user_namespace(inner_uid: int, inner_gid: int) -> None:
    """Appear under another uid while files are still reached as the real one."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    for file, line in (
        ("setgroups", "deny"),  # the kernel demands it before an unprivileged gid_map
        ("uid_map", f"{inner_uid} {uid} 1"),
        ("gid_map", f"{inner_gid} {gid} 1"),
    ):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as out:
            out.write(line)


def _supervise(child: int, wake: int, grace_s: float) -> int:
    """Wait for the program; after the end of the lifeline ask, then demand, that it stops."""
    watched = [0, wake]
    remaining = list(_STOP_SIGNALS)
    next_signal_at: float | None = None
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _exit_code(status)
        now = time.monotonic()
        if next_signal_at is not None and now >= next_signal_at and remaining:
            number = remaining.pop(0)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
            next_signal_at = now + (grace_s if number == signal.SIGINT else _LAST_RESORT_S)
        timeout = None if next_signal_at is None else max(0.0, next_signal_at - time.monotonic())
        ready, _, _ = select.select(watched, [], [], timeout)
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready and not os.read(0, 4096):
            watched = [wake]
            next_signal_at = time.monotonic()


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
