"""The system call filters, read by a small machine of our own, for every architecture."""

import errno
import struct

import pytest

from bos_sandbox.process_tier import syscalls
from bos_sandbox.process_tier.seccomp import first_filter, second_filter, supported

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL = 0x7FFF0000, 0x80000000
THREAD = 0x3D0F00  # what glibc asks for when it starts a thread


def verdict(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel answers, the way it reads the filter."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *(one & 2**64 - 1 for one in padded))
    instructions = list(struct.iter_unpack("=HBBI", program))
    at = word = 0
    while True:
        code, if_true, if_false, constant = instructions[at]
        at += 1
        match code:
            case 0x20:
                (word,) = struct.unpack_from("=I", data, constant)
            case 0x15:
                at += if_true if word == constant else if_false
            case 0x35:
                at += if_true if word >= constant else if_false
            case 0x45:
                at += if_true if word & constant else if_false
            case 0x06:
                return int(constant)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


def refused(error: int) -> int:
    return 0x00050000 | error


@pytest.fixture(params=ARCHITECTURES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def first(machine: str, name: str, *arguments: int) -> int:
    number = (syscalls.numbers(machine) or {})[name]
    return verdict(first_filter(machine), ARCHITECTURES[machine], number, *arguments)


def second(machine: str, name: str, *arguments: int) -> int:
    number = (syscalls.numbers(machine) or {})[name]
    return verdict(second_filter(machine), ARCHITECTURES[machine], number, *arguments)


def test_every_call_of_a_group_gets_the_answer_of_its_group(machine: str) -> None:
    numbers = syscalls.numbers(machine) or {}
    for names, answer in (
        (syscalls.ALLOWED, ALLOW),
        (syscalls.STARTING, ALLOW),
        (syscalls.ATTACKS, KILL),
    ):
        present = [name for name in names if name in numbers]
        assert len(present) > len(names) * 0.6
        assert {first(machine, name) for name in present} == {answer}


def test_no_call_is_in_two_groups_and_no_number_means_two_calls(machine: str) -> None:
    names = [*syscalls.ALLOWED, *syscalls.STARTING, *syscalls.ATTACKS]
    assert len(set(names)) == len(names)
    numbers = syscalls.numbers(machine) or {}
    assert len(set(numbers.values())) == len(numbers)


def test_what_is_not_listed_is_refused(machine: str) -> None:
    listed = set((syscalls.numbers(machine) or {}).values())
    program, architecture = first_filter(machine), ARCHITECTURES[machine]
    for number in set(range(syscalls.NEWEST + 1)) - listed:
        assert verdict(program, architecture, number) == refused(errno.EPERM), number
    for number in (syscalls.NEWEST + 1, 1000, 0x3FFFFFFF):
        assert verdict(program, architecture, number) == refused(errno.ENOSYS)


def test_calls_of_another_architecture_are_killed(machine: str) -> None:
    for architecture in (0x40000003, 0x40000028, 0):  # i386, arm, none
        for program in (first_filter(machine), second_filter(machine)):
            assert verdict(program, architecture, 0) == KILL


def test_other_numbers_for_the_same_calls_are_killed() -> None:
    for program in (first_filter("x86_64"), second_filter("x86_64")):
        assert verdict(program, ARCHITECTURES["x86_64"], 0x40000000) == KILL


def test_a_thread_but_no_process_and_no_namespace(machine: str) -> None:
    assert first(machine, "clone", THREAD) == ALLOW
    assert first(machine, "clone", 17) == refused(errno.EPERM)
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert first(machine, "clone", THREAD | 1 << bit) == KILL
    assert first(machine, "clone3", 0, 88) == refused(errno.ENOSYS)


def test_arguments_decide_where_they_are_plain(machine: str) -> None:
    assert first(machine, "socketpair", 1, 1, 0) == ALLOW
    assert first(machine, "socketpair", 2, 1, 0) == refused(errno.EPERM)
    assert first(machine, "ioctl", 0, 0x5401) == ALLOW
    assert first(machine, "ioctl", 0, 0x5412) == refused(errno.ENOTTY)  # types into the terminal


def test_the_second_filter_takes_away_what_the_start_needed(machine: str) -> None:
    for name in ("execve", "execveat", "sendmsg"):
        assert second(machine, name) == refused(errno.EPERM)
    assert second(machine, "prctl", 15) == ALLOW
    assert second(machine, "prctl", 22) == refused(errno.EPERM)
    assert second(machine, "read") == ALLOW


def test_limits_can_be_read_but_not_set(machine: str) -> None:
    assert second(machine, "prlimit64", 0, 7, 0, 1) == ALLOW
    for arguments in ((1, 7, 0, 1), (0, 7, 1, 0), (0, 7, 1 << 32, 0)):
        assert second(machine, "prlimit64", *arguments) == refused(errno.EPERM), arguments


def test_other_machines_are_not_supported() -> None:
    assert supported("x86_64")
    assert supported("aarch64")
    assert not supported("riscv64")
