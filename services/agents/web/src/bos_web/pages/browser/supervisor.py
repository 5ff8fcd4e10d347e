"""Supervisor of one browser: no network, and no process or file of it remains.

Executed as a script (``python -I -S supervisor.py JOB``), standard library only. JOB is JSON:
``command``, ``environment``, ``folder`` (of its profile; deleted at the end), ``uid`` (or null),
``channel_fd`` (a socket, given to the browser as 3 and 4), ``namespaces`` and ``memory_bytes``.

Standard input is the lifeline: when it ends, because the owner closed it or died in any way, every
process of the browser is killed. If this process is killed too, the kernel kills the browser.
Exit status 125: no network of its own can be had; 126: the browser cannot be started.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from typing import Any, NoReturn

NO_NAMESPACES, CANNOT_START = 125, 126
_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_MAX_FILE_BYTES = 64 * 1024 * 1024
_MAX_FILES = 1024
_REMOVALS = 50
_PAUSE_S = 0.02
_NICENESS = 5


def main() -> int:
    """Start the browser, wait for its exit or the owner's, and clean up."""
    spec: dict[str, Any] = json.loads(sys.argv[1])
    # The owner decides when to stop; a signal to its group must not leave the folder behind.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Orphaned processes of the browser are reparented to this one.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    own_pid = os.getpid()
    child = os.fork()
    if child == 0:
        _become_browser(spec, own_pid)
    os.close(spec["channel_fd"])
    try:
        return _supervise(child, wake_read)
    finally:
        _kill_all()
        _remove(spec["folder"])


def _become_browser(spec: dict[str, Any], parent: int) -> NoReturn:
    """In the child: leave the network, take the identity, replace this process."""
    status = CANNOT_START
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if spec["namespaces"]:
            status = NO_NAMESPACES
            _leave_network()
            status = CANNOT_START
        if spec["uid"] is not None:
            os.setgroups([])
            os.setgid(spec["uid"])
            os.setuid(spec["uid"])
        # A change of identity clears the parent-death signal, so it is set after that.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_START)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _limit(spec["memory_bytes"])
        os.umask(0o077)
        os.chdir(spec["folder"])
        channel, null = os.dup(spec["channel_fd"]), os.open(os.devnull, os.O_RDWR)
        channel, null = _above(channel), _above(null)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        for end in (3, 4):
            os.dup2(channel, end)
        os.closerange(5, _MAX_FILES)
        os.execve(spec["command"][0], spec["command"], spec["environment"])  # noqa: S606
    except BaseException:
        os._exit(status)
    os._exit(status)


def _above(descriptor: int) -> int:
    """Duplicate a file descriptor to an unused number."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)


def _leave_network() -> None:
    """Move into a network without any device: not even loopback is up in it."""
    root = os.geteuid() == 0
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _CLONE_NEWNET | _CLONE_NEWIPC | (0 if root else _CLONE_NEWUSER)
    if libc.unshare(flags) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if root:
        return
    for file, line in (
        ("setgroups", "deny"),  # the kernel demands it before an unprivileged gid_map
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{file}", "w", encoding="ascii") as out:
            out.write(line)


def _limit(memory_bytes: int) -> None:
    """Bound each process. V8 reserves far more address space than it writes to, so not that."""
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_FILES, _MAX_FILES))


def _supervise(child: int, wake: int) -> int:
    """Wait for the browser or the end of the lifeline."""
    while True:
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return CANNOT_START
            if ended == child:
                return os.waitstatus_to_exitcode(status) & 0xFF
            if ended == 0:
                break
        readable, _, _ = select.select([0, wake], [], [])
        if 0 in readable and not os.read(0, 4096):
            return 0
        if wake in readable:
            os.read(wake, 4096)


def _kill_all() -> None:
    """Kill every descendant process, including those that left the group and the session."""
    while children := _children():
        for each in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                pass


def _children() -> list[int]:
    own, found = str(os.getpid()), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="latin-1") as file:
            # The name of a program, in brackets, may hold anything.
            if file.read().rpartition(")")[2].split()[1] == own:
                found.append(int(name))
    return found


def _remove(folder: str) -> None:
    for _ in range(_REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.lexists(folder):
            return
        time.sleep(_PAUSE_S)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
