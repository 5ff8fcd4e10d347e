"""Isolation of a drawing process: no network, no other program, bounded memory and time."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import time
from typing import Final

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWNET, _CLONE_NEWUSER = 0x40000000, 0x10000000
_NICENESS = 5

# System calls that reach the network, another program or another process: socket, connect, execve,
# execveat, io_uring_setup, ptrace, process_vm_readv, process_vm_writev.
_REFUSED: Final = {
    "x86_64": (0xC000003E, (41, 42, 59, 322, 425, 101, 310, 311)),
    "aarch64": (0xC00000B7, (198, 203, 221, 281, 425, 117, 270, 271)),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_X32_BIT = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def enter_empty_network() -> bool:
    """Move the process, which must have one thread, into a network without devices.

    Returns whether that worked; it needs root or user namespaces.
    """
    flags = _CLONE_NEWNET if os.geteuid() == 0 else _CLONE_NEWUSER | _CLONE_NEWNET
    return bool(ctypes.CDLL(None, use_errno=True).unshare(flags) == 0)


def refuse_calls() -> bool:
    """Refuse sockets and other programs from here on, in future threads too.

    Returns whether the kernel took the filter; a machine of another kind has none.
    """
    known = _REFUSED.get(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if known is None:
        return False
    architecture, calls = known
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)]
    program.append((_LOAD, 0, 0, 0))
    if platform.machine() == "x86_64":  # the same calls under other numbers
        program += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    for call in calls:
        program += [(_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    program.append((_RETURN, 0, 0, _ALLOW))
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    held = ctypes.create_string_buffer(packed, len(packed))
    filter_ = _Program(len(program), ctypes.cast(held, ctypes.c_void_p))
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filter_), 0, 0) == 0)


def limit(memory_bytes: int) -> None:
    """Bound private memory and descriptors; no file can be written, no core dumped."""
    os.nice(_NICENESS)
    # V8 reserves address space far beyond what it uses, so the bound is on what it may write to.
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def allow_processor_time(seconds: int) -> None:
    """Bound the processor time from here on, which ends the process; called for each chart."""
    spent = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds + 1, resource.RLIM_INFINITY))
