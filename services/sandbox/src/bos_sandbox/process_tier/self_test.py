"""Self-test of the process tier's isolation at start; the tier is off where it is broken."""

from __future__ import annotations

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse
from bos_chassis.values import from_value

# Each line is a way out that must fail; the ones that succeed are the result.
SELF_TEST = """
import os, socket

ATTEMPTS = {
    "it has more rights than an unprivileged user": lambda: os.getuid() == 65534,
    "processes can be started": os.fork,
    "other programs can be run": lambda: os.execv("/python/bin/python3", ["python3", "-V"]),
    "the network can be reached": lambda: socket.socket(socket.AF_INET),
    "files of the host can be read": lambda: os.listdir("/etc"),
    "processes of the host can be seen": lambda: os.listdir("/proc"),
    "its own files can be changed": lambda: open("/python/own/inside/wire.py", "a"),
    "its limits can be raised": lambda: __import__("resource").setrlimit(9, (-1, -1)),
}
broken = []
for escape, attempt in ATTEMPTS.items():
    try:
        if attempt() is not True:
            broken.append(escape)
    except (OSError, ValueError):
        pass
if dict(os.environ).keys() & {"PATH", "USER"}:
    broken.append("it inherits an environment")
result = broken
"""

# Has to be killed.
NAMESPACE_TEST = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"


def broken_isolation(response: RunProgramResponse, namespaces: RunProgramResponse) -> str:
    """What of the isolation is broken; empty if nothing is.

    Args:
        response: What ``SELF_TEST`` gave.
        namespaces: What ``NAMESPACE_TEST`` gave.
    """
    if namespaces.status != ProgramStatus.PROGRAM_STATUS_VIOLATION:
        return "its isolation is broken: namespaces can be made"
    if response.status != ProgramStatus.PROGRAM_STATUS_SUCCEEDED:
        return f"its self-test did not end well ({response.error_type})"
    broken = from_value(response.result)
    return "" if not broken else f"its isolation is broken: {', '.join(broken)}"
