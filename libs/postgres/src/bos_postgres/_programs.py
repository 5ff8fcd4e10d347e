"""Running the programs of PostgreSQL under the supervisor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bos_postgres._identity import Identity
from bos_postgres._installation import Installation

_SUPERVISOR: Final = Path(__file__).with_name("_supervisor.py")
# Nothing of ours: no secrets, no PG* variables, no locale of the caller.
_ENVIRONMENT: Final = {"PATH": os.defpath, "LANG": "C", "TZ": "UTC"}
_PROBE_S: Final = 20.0
_POLL_S: Final = 0.01
_MARGIN_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one installation, run under one identity for one data folder."""

    installation: Installation
    identity: Identity
    log_file: Path
    lock_fd: int
    """Inherited by every program, so that the lock lasts as long as any of them lives."""

    def launch(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        access: Sequence[Path] = (),
        grace_s: float = 2.0,
        remove: Path | None = None,
    ) -> Running:
        """Start a program; it ends with the returned object's lifeline at the latest."""
        program = str(self.installation.program(name))
        spec = {
            "command": [program, *arguments],
            "environment": _ENVIRONMENT,
            "access": [program, *map(str, access)],
            "identity": self.identity.kind,
            "uid": self.identity.uid,
            "gid": self.identity.gid,
            "keep_fds": [self.lock_fd],
            "remove": str(remove) if remove else None,
            "grace_s": grace_s,
        }
        log = os.open(self.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            process = subprocess.Popen(  # noqa: S603  our own interpreter and script
                [sys.executable, "-I", "-S", str(_SUPERVISOR), json.dumps(spec)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(self.lock_fd,),
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(log)
        return Running(process)

    def run(
        self,
        name: str,
        arguments: Sequence[str],
        timeout_s: float,
        abandoned: threading.Event | None = None,
        *,
        access: Sequence[Path] = (),
    ) -> bool:
        """Run a program to its end; whether it ended well, and in time."""
        running = self.launch(name, arguments, access=access)
        deadline = time.monotonic() + timeout_s
        try:
            while not running.ended and time.monotonic() < deadline:
                if abandoned is None:
                    running.wait(_POLL_S)
                elif abandoned.wait(_POLL_S):
                    return False
            return running.ended and running.succeeded
        finally:
            running.stop(0.0)

    def work_in(self, folder: Path) -> bool:
        """Whether a program can run under this identity and use ``folder``."""
        return self.run("postgres", ["--version"], _PROBE_S, access=(folder,))


class Running:
    """A program that has been launched, seen through its supervisor."""

    def __init__(self, supervisor: subprocess.Popen[bytes]) -> None:
        self._supervisor = supervisor

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self._supervisor.poll() is not None

    @property
    def succeeded(self) -> bool:
        """Whether it is over with status 0."""
        return self._supervisor.poll() == 0

    def wait(self, timeout_s: float) -> None:
        """Wait for the end, no longer than ``timeout_s``."""
        try:
            self._supervisor.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return

    def stop(self, grace_s: float) -> None:
        """Cut the lifeline and wait for the end, which the supervisor enforces."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()
        self.wait(grace_s + _MARGIN_S)
        if not self.ended:
            self._supervisor.kill()
            self._supervisor.wait()
