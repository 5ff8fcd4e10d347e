"""A disk that is full under spool, stored files or index, with the real engines.

It mounts small file systems, which needs root: `make test-documents-disk`, not `make test`.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents_trials import full_disk
from documents_trials.machine import needs

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

HERE = Path(__file__).parents[1]


def can_mount(unshare: str) -> bool:
    """Whether this user may have a mount namespace."""
    command = [unshare, "--mount", "true"]
    return bool(unshare) and subprocess.run(command, check=False).returncode == 0


async def test_full_disk_loses_nothing_and_shows_nothing_half(
    postgres_dsn: str, tmp_path: Path
) -> None:
    unshare = shutil.which("unshare") or ""
    needs(
        can_mount(unshare),
        "small file systems cannot be mounted: it takes root, and unshare of util-linux",
    )
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = await asyncio.create_subprocess_exec(
        *(unshare, "--mount", sys.executable, "-m", full_disk.__name__),
        *(postgres_dsn, str(tmp_path)),
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()[-4000:]
    assert said.decode().split() == [*full_disk.FOLDERS, "start"]
