"""The system call filters of the process tier, as the kernel reads them (classic BPF).

Two filters stack, and the stricter answer wins:

1. :func:`first_filter` is in force from the first instruction of the isolated interpreter. It is
   an allow-list (:mod:`bos_sandbox.process_tier.syscalls`): no network, no new process, no
   namespace, no mount.
   What only an attack would call kills the process; everything else that is not listed is refused.
2. :func:`second_filter` is added by the worker before it runs a program, and takes away what the
   start itself needed: another program's code (``execve``), process options, higher limits,
   handing over of descriptors.

A filter cannot be taken off again, and is inherited by threads.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable

from bos_sandbox.process_tier import syscalls

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # on x86_64: the same calls under other numbers

_KILL = 0x80000000
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

# Offsets in struct seccomp_data.
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06

_CLONE_THREAD = 0x00010000
_CLONE_NAMESPACES = 0x7E020000
_AF_UNIX = 1
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_HARMLESS_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS and TIOCGWINSZ ("is this a terminal?"), FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""

Instruction = tuple[int, int, int, int]


def supported(machine: str) -> bool:
    """Whether there is a filter for ``machine`` (as ``platform.machine()`` says)."""
    return machine in _AUDIT_ARCH and syscalls.numbers(machine) is not None


def first_filter(machine: str) -> bytes:
    """The allow-list, for ``bwrap --seccomp``.

    Raises:
        KeyError: ``machine`` is not :func:`supported`.
    """
    number = _numbers(machine)
    program = _prologue(machine)
    for name in (*syscalls.ALLOWED, *syscalls.STARTING):
        program += _on(number.get(name), [_return(_ALLOW)])
    for name in syscalls.ATTACKS:
        program += _on(number.get(name), [_return(_KILL)])
    program += _on(number["clone"], _clone())
    # glibc tries clone3 first and takes clone where it does not exist. Its flags lie behind a
    # pointer, which no filter can follow.
    program += _on(number["clone3"], [_return(_refusal(errno.ENOSYS))])
    program += _on(number["ioctl"], [*_argument_in(1, _HARMLESS_IOCTLS), _refuse(errno.ENOTTY)])
    program += _on(number["socketpair"], [*_argument_in(0, (_AF_UNIX,)), _refuse()])
    program += [(_AT_LEAST, 0, 1, syscalls.NEWEST + 1), _return(_refusal(errno.ENOSYS)), _refuse()]
    return _pack(program)


def second_filter(machine: str) -> bytes:
    """What the worker adds before a program runs, for ``prctl(PR_SET_SECCOMP)``.

    Raises:
        KeyError: ``machine`` is not :func:`supported`.
    """
    number = _numbers(machine)
    program = _prologue(machine)
    for name in ("execve", "execveat", "sendmsg"):
        program += _on(number[name], [_refuse()])
    program += _on(number["prctl"], [*_argument_in(0, (_PR_SET_NAME, _PR_GET_NAME)), _refuse()])
    program += _on(number["prlimit64"], _read_own_limit())
    program.append(_return(_ALLOW))
    return _pack(program)


def _prologue(machine: str) -> list[Instruction]:
    """Kill calls of another architecture, whose numbers mean something else; load the number."""
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), _return(_KILL)]
    return program


def _on(number: int | None, body: list[Instruction]) -> list[Instruction]:
    """``body``, which must end in a return, for one system call; nothing where there is none."""
    return [] if number is None else [(_EQUAL, 0, len(body), number), *body]


def _clone() -> list[Instruction]:
    """A thread, but neither a process nor a namespace."""
    return [
        (_LOAD, 0, 0, _ARGUMENTS),
        (_ANY_BIT, 0, 1, _CLONE_NAMESPACES),
        _return(_KILL),
        (_ANY_BIT, 0, 1, _CLONE_THREAD),
        _return(_ALLOW),
        _refuse(),
    ]


def _read_own_limit() -> list[Instruction]:
    """``prlimit64(0, …, NULL, …)``, which is how limits are read."""
    words = (_ARGUMENTS, _ARGUMENTS + 16, _ARGUMENTS + 20)
    checks: list[Instruction] = []
    for left, word in zip((3, 2, 1), words, strict=True):
        checks += [(_LOAD, 0, 0, word), (_EQUAL, 0, 2 * left - 1, 0)]
    return [*checks, _return(_ALLOW), _refuse()]


def _argument_in(index: int, values: Iterable[int]) -> list[Instruction]:
    """Allow when the low half of an argument is one of ``values``, else go on."""
    program: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * index)]
    for value in values:
        program += [(_EQUAL, 0, 1, value), _return(_ALLOW)]
    return program


def _refuse(error: int = errno.EPERM) -> Instruction:
    return _return(_refusal(error))


def _refusal(error: int) -> int:
    return _ERRNO | error


def _return(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _numbers(machine: str) -> dict[str, int]:
    numbers = syscalls.numbers(machine)
    if numbers is None:
        raise KeyError(machine)
    return numbers


def _pack(program: list[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
