"""Data folder of an embedded server: lock, pid file, log, ownership."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
import time
from pathlib import Path
from typing import Final

from bos_errors import ConfigurationError
from bos_postgres._identity import Identity

_LOG_BYTES: Final = 4 << 20
_POLL_S: Final = 0.01


def take_lock(data_dir: Path, takeover_s: float, abandoned: threading.Event) -> int:
    """Own the folder; returns the open descriptor that the server's processes will share.

    Where the last owner is gone but its server is still shutting down, wait ``takeover_s``.

    Raises:
        ConfigurationError: Another live process owns it.
    """
    fd = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + takeover_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = int(os.pread(fd, 20, 0) or b"0")
            if _alive(owner) or time.monotonic() > deadline or abandoned.wait(_POLL_S):
                os.close(fd)
                raise ConfigurationError(
                    f"The embedded PostgreSQL in {data_dir} is in use by process {owner}. "
                    "Stop that process, or choose another folder."
                ) from None
        else:
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode("ascii"), 0)
            return fd


def give_up_lock(fd: int) -> None:
    """Own the folder no longer; the next owner waits for what is left of the server.

    Backends of a killed server hold the lock a moment longer than it lives, and the process that
    owned it may well be alive: it must not be taken for a living owner then.
    """
    os.ftruncate(fd, 0)
    os.close(fd)


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def give(path: Path, identity: Identity) -> None:
    """Make a file or folder belong to the identity; only root can and needs to."""
    if not path.exists() or os.geteuid() != 0 or path.stat().st_uid == identity.file_owner[0]:
        return
    for inner in path.rglob("*"):
        os.chown(inner, *identity.file_owner, follow_symlinks=False)
    os.chown(path, *identity.file_owner)  # last: it says that all of it was done


def postmaster_pid(cluster: Path) -> int | None:
    """Process id in the server's pid file, if there is one."""
    try:
        return int((cluster / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


def ready(cluster: Path) -> bool:
    """Whether the server says in its pid file that it accepts connections."""
    try:
        lines = (cluster / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"  # the form is pg_ctl's


def clear_stale_pid(cluster: Path) -> None:
    """Remove the pid file of a server that is gone.

    PostgreSQL does so too, unless some unrelated process now has that id, as happens whenever a
    container restarts. We hold the lock, so only a server started by other means can be alive.
    """
    pid = postmaster_pid(cluster)
    if pid is None or not Path("/proc/self/cwd").exists():
        return
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if (Path("/proc") / str(pid) / "cwd").samefile(cluster):
            raise ConfigurationError(
                f"Another PostgreSQL (process {pid}) runs in {cluster}. Stop it first."
            )
    (cluster / "postmaster.pid").unlink(missing_ok=True)


def free_port() -> int:
    """A TCP port of 127.0.0.1 without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def rotate(log: Path) -> None:
    """Put a large log aside, replacing the one put aside before."""
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_name(log.name + ".1"))
