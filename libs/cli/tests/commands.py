"""Services on real ports, and the program: in this process, or as one of its own."""

import asyncio
import os
import pty
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from bos_chassis.auth.callers import StaticKey
from bos_chassis.server import Servicer, grpc_server
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_cli.main import main
from bos_testkit.scripted_gateway import KEY

BOS = Path(sys.executable).with_name("bos")


def _servicer(served: Any) -> Servicer:
    generated = next(each for each in type(served).__mro__ if each.__module__.endswith("_pb2_grpc"))
    module = sys.modules[generated.__module__]
    service = generated.__name__.removesuffix("Servicer")
    add = getattr(module, f"add_{generated.__name__}_to_server")
    package = generated.__module__.rpartition(".")[0]
    return Servicer(served, add, f"{package}.{service}", tuple(getattr(served, "open_methods", ())))


@asynccontextmanager
async def serving(*served: Any, key: str = KEY, **settings: Any) -> AsyncIterator[str]:
    """Serve servicers of the contracts at one address, behind a static key unless it is empty."""
    async with grpc_server(
        ServerSettings.load(**{"grace_s": 0.0, **settings}),
        [_servicer(each) for each in served],
        telemetry=Telemetry.for_tests("gateway"),
        auth=StaticKey(key) if key else None,
    ) as server:
        yield server.address


async def invoke(address: str, *arguments: str, stdin: str | None = None) -> Result:
    """Run a command in this process, in an event loop of its own."""
    options = ["--target", address, "--api-key", KEY, *arguments]
    return await asyncio.to_thread(CliRunner().invoke, main, options, input=stdin)


@dataclass
class Finished:
    code: int
    out: str
    err: str


async def begin(gateway: Any, *arguments: str, env: Any = None, **options: Any) -> Process:
    environment = {"PATH": os.environ["PATH"], "BOS_TARGET": gateway.address, "BOS_API_KEY": KEY}
    streams = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, **options}
    return await asyncio.create_subprocess_exec(
        BOS, *arguments, env=environment | (env or {}), **streams
    )


async def bos(gateway: Any, *arguments: str) -> Finished:
    """Run a command in this process, without a terminal."""
    done = await invoke(gateway.address, *arguments)
    return Finished(done.exit_code, done.stdout, done.stderr)


async def bos_with_input(text: str, *arguments: str, env: Any) -> tuple[int, str]:
    """Run a command in this process with these variables; its exit code, and all that it says."""
    done = await asyncio.to_thread(CliRunner().invoke, main, arguments, input=text, env=env)
    return done.exit_code, done.output


async def at_terminal(
    gateway: Any,
    *arguments: str,
    answer: Callable[[str], str | None] = lambda shown: None,
    env: Any = None,
) -> Finished:
    """Run the program at a terminal; ``answer`` is asked what to type whenever more is shown."""
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm", "LANG": "C.UTF-8", **(env or {})}
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = await begin(gateway, *arguments, env=env, **streams)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += await asyncio.to_thread(os.read, ours, 65536)
        except OSError:  # how a terminal says that its last writer is gone
            break
        if (typed := answer(shown.decode(errors="replace"))) is not None:
            os.write(ours, typed.encode() + b"\n")
    os.close(ours)
    text = shown.decode(errors="replace").replace("\r\n", "\n")
    return Finished(await process.wait(), text, "")
