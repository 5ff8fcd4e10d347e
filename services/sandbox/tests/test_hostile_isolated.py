"""What full Python may try in the process tier: it ends in time, and leaves nothing behind.

Every program here asks for that tier by name, so no static check stands in its way: what is tried
is really tried, and it is the kernel that says no.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from sandbox_client import Sandbox, open_sandbox

from bos.sandbox.v1 import Limits, ProgramStatus, Tier
from bos_chassis.values import from_value
from bos_sandbox.settings import SandboxSettings
from bos_testkit.waiting import eventually

pytestmark = [pytest.mark.security, pytest.mark.asyncio(loop_scope="module")]

SUCCEEDED = ProgramStatus.PROGRAM_STATUS_SUCCEEDED
FAILED = ProgramStatus.PROGRAM_STATUS_FAILED
VIOLATION = ProgramStatus.PROGRAM_STATUS_VIOLATION
LIMIT_EXCEEDED = ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED

LIBC = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
NUMBERS = {  # x86_64, aarch64
    "bpf": (321, 280),
    "capset": (126, 91),
    "io_uring_setup": (425, 425),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "process_vm_readv": (310, 270),
    "userfaultfd": (323, 282),
    "move_mount": (429, 429),
    "pivot_root": (155, 41),
    "kcmp": (312, 272),
    "clone": (56, 220),
    "execveat": (322, 281),
    "seccomp": (317, 277),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "prlimit64": (302, 261),
    "tomorrow": (2000, 2000),
}


def call(name: str, *arguments: int) -> str:
    """A program that makes one system call; its result is the error, or 0."""
    number = NUMBERS[name][platform.machine() == "aarch64"]
    given = ", ".join(f"ctypes.c_long({one})" for one in arguments)
    return f"{LIBC}0 if libc.syscall({number}, {given}) >= 0 else ctypes.get_errno()"


KILLED = {  # only an attack has a use for these
    "unshare a user namespace": LIBC + "libc.unshare(0x10000000)",
    "clone into a new user namespace": call("clone", 0x10000000 | 17, 0, 0, 0, 0),
    "setns": LIBC + "libc.setns(0, 0)",
    "mount": LIBC + "libc.mount(b'none', b'/work', b'tmpfs', 0, b'')",
    "umount": LIBC + "libc.umount2(b'/work', 2)",
    "move_mount": call("move_mount", 0, 0, 0, 0, 0),
    "pivot_root": call("pivot_root", 0, 0),
    "chroot": "import os\nos.chroot('/work')",
    "ptrace": LIBC + "libc.ptrace(0, 0, 0, 0)",
    "read another's memory": call("process_vm_readv", 1, 0, 0, 0, 0, 0),
    "kcmp": call("kcmp", 1, 2, 0, 0, 0),
    "keyctl": call("keyctl", 0, -3, 1),
    "bpf": call("bpf", 0, 0, 0),
    "perf_event_open": call("perf_event_open", 0, 0, -1, -1, 0),
    "io_uring": call("io_uring_setup", 8, 0),
    "userfaultfd": call("userfaultfd", 0),
    "open_by_handle_at": call("open_by_handle_at", -100, 0, 0),
    "init_module": call("init_module", 0, 0, 0),
    "kexec_load": call("kexec_load", 0, 0, 0, 0),
    "capset": call("capset", 0, 0),
    "become root": "import os\nos.setuid(0)",
    "change groups": "import os\nos.setgroups([0])",
    "host name": "import socket\nsocket.sethostname('x')",
    "reboot": LIBC + "libc.reboot(0x01234567)",
    "personality": LIBC + "libc.personality(0x0040000)",
    "swap": LIBC + "libc.swapon(b'/work/x', 0)",
    "caught": LIBC + "try:\n    libc.unshare(0x10000000)\nexcept BaseException:\n    pass\n5",
    "in a thread": (
        LIBC + "import threading\nt = threading.Thread(target=libc.unshare, args=(0x10000000,))\n"
        "t.start()\nt.join()\n5"
    ),
}
if platform.machine() == "x86_64":
    KILLED["the same call by its x32 number"] = LIBC + "libc.syscall(0x40000000 | 272, 0x10000000)"
    KILLED["the 32-bit endpoint"] = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))\n"  # mov eax, getpid; int 0x80; ret
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()"
    )

REFUSED = {  # an error the program could have caught
    "fork": "import os\nos.fork()",
    "fork bomb": "import os\nwhile True: os.fork()",
    "new session": "import os\nos.setsid()",
    "subprocess": "import subprocess\nsubprocess.run(['/bin/sh', '-c', 'id'])",
    "posix_spawn": "import os\nos.posix_spawn('/python/bin/python3', ['x'], {})",
    "execve": "import os\nos.execv('/python/bin/python3', ['python3', '-c', '1'])",
    "multiprocessing": (
        "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=print).start()"
    ),
    "class walk": (
        "classes = ().__class__.__base__.__subclasses__()\n"
        "import subprocess\n"
        "next(c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'Popen')(['id'])"
    ),
    "loader of the standard library": (
        "import importlib\nimportlib.import_module('o' + 's').fork()"
    ),
    "tcp": "import socket\nsocket.create_connection(('127.0.0.1', 22), timeout=1)",
    "unix socket": "import socket\nsocket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
    "netlink": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "socketpair of another family": "import socket\nsocket.socketpair(socket.AF_INET)",
    "memfd": "import os\nos.memfd_create('x')",
    "mknod": "import os, stat\nos.mknod('/work/null', stat.S_IFCHR | 0o666, os.makedev(1, 3))",
    "fifo": "import os\nos.mkfifo('/work/fifo')",
    "hard link": "import os\nos.link('/python/lib/python3.11/os.py', '/work/os.py')",
    "inotify": LIBC + "if libc.inotify_init1(0) < 0: raise OSError(ctypes.get_errno(), 'inotify')",
    "priority": "import os\nos.setpriority(os.PRIO_PROCESS, 0, -20)",
    "real-time scheduling": (
        "import os\nos.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"
    ),
    "standard library": "import os\nopen(os.__file__, 'a')",
    "interpreter": "open('/python/bin/python3', 'r+b')",
    "remove the standard library": "import os\nos.remove(os.__file__)",
    "a file beside": "open('/evil', 'w')",
    "through a link": "import os\nos.symlink('/python', '/work/p')\nopen('/work/p/x', 'w')",
}

ABSENT = {  # what is not there cannot be opened
    "passwords": "open('/etc/passwd').read()",
    "its memory map": "open('/proc/self/maps').read()",
    "root of another": "import os\nos.listdir('/proc/1/root')",
    "kernel settings": "open('/proc/sys/kernel/core_pattern', 'w')",
    "devices": "open('/dev/mem', 'rb')",
    "shared memory": "open('/dev/shm/x', 'w')",
    "service's account": "open('/var/run/secrets/kubernetes.io/serviceaccount/token').read()",
    "link to the host": "import os\nos.symlink('/etc/passwd', '/work/p')\nopen('/work/p').read()",
    "code of the service": "import bos_sandbox",
    "other packages": "import grpc",
}

HARMLESS: dict[str, tuple[str, Any]] = {  # what is done, and what it gives
    "shell": ("import os\nos.system('id') != 0", True),
    "a call of tomorrow": (call("tomorrow", 0), 38),
    "execveat": (call("execveat", -100, 0, 0, 0, 0), 1),
    "a filter of its own": (call("seccomp", 0, 0, 0), 1),
    "memory without a file": (call("memfd_secret", 0), 1),
    "shared memory segment": (call("shmget", 0, 4096, 0o1600), 1),
    "limits of its parent": (call("prlimit64", 1, 7, 0, 0), 1),
    "lock memory": (LIBC + "libc.mlockall(3)", -1),
    "kill its parent": (
        "import os\nfor _ in range(3): os.kill(os.getppid(), 9)\nos.getppid()",
        1,
    ),
    "kill all processes": (
        "import os\ntry:\n    os.kill(-1, 9)\nexcept ProcessLookupError:\n    pass\n5",
        5,
    ),
    "environment": (
        "import os\nsorted(n for n in os.environ if not n.endswith('_NUM_THREADS'))",
        ["HOME", "LANG", "LD_LIBRARY_PATH", "MPLBACKEND", "PWD", "PYTHONHASHSEED", "TMPDIR", "TZ"],
    ),
    "who it is": (
        "import os\n[os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]",
        [65534] * 3,
    ),
    "terminal escapes": ("import fcntl\ntry:\n    fcntl.ioctl(0, 0x5412, b'x')\n"
                         "except OSError as error:\n    n = error.errno\nn", 25),
    "a terminal": (
        "import os\ntry:\n    os.openpty()\nexcept OSError:\n    result = 'none'",
        "none",
    ),
    "standard input": ("import sys\nsys.stdin.read()", ""),
    "what it sees of the machine": ("import os\nsorted(os.listdir('/'))", None),
    "higher limits": (
        "import resource\ntry:\n    resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))\n"
        "except (OSError, ValueError):\n    n = 1\nn",
        1,
    ),
    "frames": (
        "import sys\nframe = sys._getframe()\nwhile frame.f_back: frame = frame.f_back\n"
        "frame.f_globals['sys'] is sys",
        True,
    ),
}  # fmt: skip
FORGED = """
import os
def control():
    for number in range(3, 4096):
        try:
            os.fstat(number)
            return number
        except OSError:
            pass
def answer(data, size=None):
    os.write(control(), (len(data) if size is None else size).to_bytes(4, "big") + data)
"""
FORGERIES = {
    "no JSON": ("answer(b'hello')\nos._exit(0)", "Exited"),
    "no status": ("answer(b'{}')", "ResultError"),
    "endless nesting": ("answer(b'[' * 100_000)\nos._exit(0)", "Exited"),
    "nested result": (
        "answer(b'{\"status\":\"succeeded\",\"result\":' + b'[' * 500 + b']' * 500 + b'}')",
        "ResultError",
    ),
    "a claimed size": ("answer(b'x', 2**32 - 1)", "result_size"),
    "half an answer": ("answer(b'{', 100)\nos._exit(0)", "Exited"),
    "long decimals": (
        "answer(b'{\"status\":\"succeeded\",\"result\":{\"decimal\":\"1E+131000\"}}')",
        "result_size",
    ),
    "no decimal": (
        "answer(b'{\"status\":\"succeeded\",\"result\":{\"decimal\":\"a\"}}')",
        "ResultError",
    ),
    "unknown type": (
        "answer(b'{\"status\":\"succeeded\",\"result\":{\"pickle\":\"a\"}}')",
        "ResultError",
    ),
    "unknown limit": ("answer(b'{\"status\":\"limit\",\"kind\":\"evil\"}')", "ResultError"),
    "unknown rule": ("answer(b'{\"status\":\"violation\",\"kind\":\"evil\"}')", "ResultError"),
    "a closed channel": ("os.close(control())\nwhile True: pass", "time"),
    "leaves": ("os._exit(0)", "Exited"),
}  # fmt: skip

LIMITS = {
    "endless loop": ("while True: pass", "time"),
    "loop that catches": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "time",
    ),
    "sleep": ("import time\ntime.sleep(10**6)", "time"),
    "waits for itself": ("import threading\nthreading.Event().wait()", "time"),
    "stops itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", "time"),
    "ignores signals": (
        "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\nwhile True: pass",
        "time",
    ),
    "slow expression": ("import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')", "time"),
    "huge power": ("len(str(9 ** 9 ** 9))", "time"),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)", "worker"),
    "crashes": ("import ctypes\nctypes.string_at(0)", "worker"),
    "deep nesting in C": (
        "x = []\nfor _ in range(10**6): x = [x]\nimport sys\nsys.setrecursionlimit(10**9)\nrepr(x)",
        "worker or memory",
    ),
    "recursion": ("def f(): return f()\nf()", "recursion"),
    "doubling": ("s = 'a'\nwhile True: s += s", "memory"),
    "table": ("import pandas as pd\npd.DataFrame({'a': range(10**8)})['a'].tolist()", "memory"),
    "shared pages": (
        "import mmap\npages = []\nwhile True:\n    try: pages.append(mmap.mmap(-1, 2**22))\n"
        "    except OSError:\n        raise MemoryError",
        "memory",
    ),
    "errors": ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "output"),
    "output past Python": ("import os\nwhile True: os.write(1, b'x' * 1000)", "output"),
    "full folder": ("for n in range(100): open(str(n), 'wb').write(b'x' * 10**6)", "disk"),
    "many files": ("n = 0\nwhile True:\n    n += 1\n    open(str(n), 'w').close()", "files"),
    "many folders": (
        "import os\nn = 0\nwhile True:\n    n += 1\n    os.mkdir(f'/work/{n}')",
        "files",
    ),
    "open files": ("files = [open('/work/x', 'w') for _ in range(10**4)]", "open_files"),
}


def short(limit: str) -> Limits | None:
    """A second for what is to end by its time; the rest has the time of the settings."""
    return Limits(timeout=Duration(seconds=1)) if limit == "time" else None


async def ends(inmates: Callable[[], set[int]]) -> None:
    """No process is left. That the next program gets its result, the next test shows."""
    await eventually(lambda: not inmates())


@pytest.mark.parametrize("name", KILLED)
async def test_attack_kills_the_program_as_a_violation(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    response = await isolated.run(KILLED[name])
    assert (response.status, response.error_type) == (VIOLATION, "system_call"), response
    assert response.exit_code == 159
    await ends(inmates)


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refusal_that_ends_the_program_is_a_violation(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    response = await isolated.run(REFUSED[name])
    assert response.status == VIOLATION, response
    assert response.error_type in {"system_call", "file_access"}
    assert response.error_message.startswith("line ")
    await ends(inmates)


@pytest.mark.parametrize("name", ABSENT)
async def test_what_is_not_there_fails(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    response = await isolated.run(ABSENT[name])
    assert response.status == FAILED, response
    assert response.error_type in {"FileNotFoundError", "ModuleNotFoundError"}
    await ends(inmates)


@pytest.mark.parametrize("name", HARMLESS)
async def test_what_comes_to_nothing_is_no_violation(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    code, expected = HARMLESS[name]
    response = await isolated.run(code)
    assert response.status == SUCCEEDED, response
    result = from_value(response.result)
    match name:
        case "what it sees of the machine":
            assert set(result) <= {"lib", "lib64", "python", "work"}
        case "who it is":
            # The kernel shows groups that have no name in this namespace as 65534.
            assert result[:3] == expected
            assert set(result[3]) <= {65534}
        case _:
            assert result == expected
    await ends(inmates)


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forged_answer_harms_only_the_program_that_forged_it(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    code, kind = FORGERIES[name]
    response = await isolated.run(FORGED + code, limits=short(kind))
    assert response.status in {FAILED, LIMIT_EXCEEDED}, response
    assert response.error_type == kind
    await ends(inmates)


async def test_output_flood_ends_by_the_output_limit(process_settings: SandboxSettings) -> None:
    flood = "import os\nwhile True:\n    os.write(1, b'x' * 2**16)\n    os.write(2, b'y' * 2**16)"
    patient = process_settings.model_copy(update={"timeout_s": 300.0})  # the client gives up first
    async with open_sandbox(patient, Tier.TIER_PROCESS) as opened:
        for _ in range(12):  # whether a pipe is full at the end is chance
            assert (await opened.run(flood)).error_type == "output"


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_ends_the_program_in_time(
    isolated: Sandbox, inmates: Callable[[], set[int]], name: str
) -> None:
    code, limit = LIMITS[name]
    response = await isolated.run(code, limits=short(limit))
    assert response.status == LIMIT_EXCEEDED, response
    assert response.error_type in limit.split(" or ")
    await ends(inmates)


async def test_a_program_may_answer_for_itself_but_gains_nothing(isolated: Sandbox) -> None:
    forged = r"""answer(b'{"status":"succeeded","result":"forged","peak_bytes":-1}')"""
    response = await isolated.run(f"{FORGED}\nprint('x')\n{forged}\nwhile True: pass")
    assert (response.status, from_value(response.result)) == (SUCCEEDED, "forged")
    assert response.peak_memory_bytes == 0


async def test_threads_are_bounded(isolated: Sandbox, inmates: Callable[[], set[int]]) -> None:
    code = (
        "import threading, time\n"
        "for _ in range(100): threading.Thread(target=time.sleep, args=(60,)).start()"
    )
    response = await isolated.run(code)
    assert response.error_type == "RuntimeError"
    await ends(inmates)


async def test_only_its_own_descriptors_are_open(isolated: Sandbox) -> None:
    code = (
        "import os, stat\nopen_ones = []\nfor n in range(4096):\n    try:\n"
        "        open_ones.append(stat.S_IFMT(os.fstat(n).st_mode))\n    except OSError: pass\n"
        "open_ones"
    )
    import stat

    kinds = from_value((await isolated.run(code)).result)
    # Standard input is the null device, output and errors are pipes, and one socket to the service.
    assert kinds == [stat.S_IFCHR, stat.S_IFIFO, stat.S_IFIFO, stat.S_IFSOCK]


@pytest.mark.requirement("F-04")
async def test_nothing_is_handed_from_program_to_program(isolated: Sandbox) -> None:
    await isolated.run(
        "import os\nopen('left', 'w').write('x')\nos.environ['LEFT'] = 'x'\nleft = 1"
    )
    response = await isolated.run(
        "import os\n[os.listdir('.'), 'LEFT' in os.environ, 'left' in dir()]"
    )
    assert from_value(response.result) == [[], False, False]
