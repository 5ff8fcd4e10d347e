"""The whole product as one process with the real REST gateway, in a folder of its own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bos_testkit.processes import PATIENT

ROOT = Path(__file__).parents[2]
BOS = Path(sys.executable).with_name("bos")


@dataclass(frozen=True)
class RestHarness:
    """A running harness."""

    folder: Path
    url: str
    key: str
    printed: str
    """What it said when it was up."""


@asynccontextmanager
async def rest_harness(folder: Path) -> AsyncIterator[RestHarness]:
    """``bos serve all`` in ``folder``, up; ended by SIGTERM."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(BOS, "serve", "all"),
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "BOS_STANDALONE_REST_PORT": "0",
            "BOS_STANDALONE_DEMO_DOCUMENTS": "false",
            **PATIENT,
        },
        stdout=pipe,
        stderr=pipe,
    )
    assert process.stdout is not None
    try:
        try:
            printed = await process.stdout.readuntil(b"Ctrl-C stops.")
        except asyncio.IncompleteReadError as error:
            assert process.stderr is not None
            raise AssertionError((error.partial, await process.stderr.read())) from None
        content = json.loads((folder / ".data/standalone.json").read_text(encoding="utf-8"))
        assert content["rest_url"], "build it first: make rest"
        yield RestHarness(folder, content["rest_url"], content["api_key"], printed.decode())
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()
