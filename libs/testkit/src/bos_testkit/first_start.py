"""Data folders of ``bos serve all`` as its first start leaves them, for tests about what follows.

A first start creates a database cluster, all tables and the sample company: half of the processor
time of starting. It is paid once for all workers of a test session.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_DONE_S = 240.0
_OF_ONE_START = ("standalone.*",)
"""Names in a data folder that say where a start listens; without them ports are chosen anew."""


@pytest.fixture(scope="session")
def started_before(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Makes a data folder in which ``bos serve all`` was started once, without documents.

    What it is called with must be missing or empty; it returns that path.
    """
    own = tmp_path_factory.getbasetemp()
    # Workers of pytest-xdist have folders of their own in one of their session.
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    original = shared / "first-start"
    with (shared / "first-start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            _start_once(shared / "first-start.partial").rename(original)

    def copy(folder: Path) -> Path:
        if (original / ".data/postgres/relocated").is_symlink():
            return folder  # its data lies elsewhere and is nobody's to copy: a first start then
        shutil.copytree(
            original / ".data",
            folder,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns(*_OF_ONE_START),
        )
        return folder

    return copy


def _start_once(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    settings = {
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "BOS_STANDALONE_REST": "false",
        "BOS_STANDALONE_DEMO_DOCUMENTS": "false",
        "BOS_SANDBOX_PROCESS_ENABLED": "false",
    }
    with subprocess.Popen(  # noqa: S603 - our own program
        (Path(sys.executable).with_name("bos"), "serve", "all"),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if "Ctrl-C stops." in line:
                process.send_signal(signal.SIGTERM)
        code = process.wait(_DONE_S)
    assert code == 0, "".join(printed)
    return folder
