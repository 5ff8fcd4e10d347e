"""One browser process: own folder, own network without devices, killed with its children."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bos_chassis.concurrency.tasks import running_task
from bos_web.pages.browser.devtools import MAX_MESSAGE_BYTES, DevTools

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_UID = 64_230
"""Of browsers of a service that runs as root; no account has it."""
_NO_BUS = {"DBUS_SESSION_BUS_ADDRESS": "disabled:", "DBUS_SYSTEM_BUS_ADDRESS": "disabled:"}
_STOP_S = 10.0
_REMOVALS = 200
_PAUSE_S = 0.05
_HEAP_MIB = 256
_SWITCHES = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-startup-window",
    "--no-first-run",
    "--no-default-browser-check",
    # Nothing is reached but by requests that the agent answers. These hold where there is no
    # network of its own: no name is resolved, and the proxy's is none either.
    "--proxy-server=http://nowhere.invalid:9",
    "--proxy-bypass-list=<-loopback>",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-quic",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy",
    "--disable-features=WebRtcHideLocalIpsWithMdns,HttpsUpgrades,MediaRouter,"
    "OptimizationHints,Translate,DialMediaRouteProvider,AsyncDns,Prerender2",
    "--dns-prefetch-disable",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-client-side-phishing-detection",
    "--metrics-recording-only",
    "--no-pings",
    "--no-service-autorun",
    # Nothing is asked, kept, shown or started.
    "--deny-permission-prompts",
    "--disable-extensions",
    "--disable-component-extensions-with-background-pages",
    "--disable-notifications",
    "--disable-speech-api",
    "--disable-gpu",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--block-new-web-contents",
    "--mute-audio",
    "--hide-scrollbars",
    "--password-store=basic",
    "--use-mock-keychain",
    "--disk-cache-size=1",
    "--renderer-process-limit=1",
    "--disable-dev-shm-usage",
    "--blink-settings=imagesEnabled=false",
    f"--js-flags=--max-old-space-size={_HEAP_MIB}",
)


@dataclass(frozen=True, slots=True)
class Launch:
    """How a browser is started.

    Args:
        program: Chromium.
        namespaces: Whether it has a network of its own and its sandbox; False where the container
            of the service is its sandbox.
        memory_bytes: Private memory of each of its processes.
        user_agent: User-Agent header of its requests.
    """

    program: str
    namespaces: bool
    memory_bytes: int
    user_agent: str

    def command(self, folder: str) -> list[str]:
        """Program and arguments."""
        sandbox = ("--disable-setuid-sandbox",) if self.namespaces else ("--no-sandbox",)
        return [
            self.program,
            *_SWITCHES,
            *sandbox,
            f"--user-data-dir={folder}/profile",
            f"--user-agent={self.user_agent}",
        ]


@dataclass(slots=True)
class Running:
    """A browser that was started."""

    devtools: DevTools
    supervisor: asyncio.subprocess.Process
    folder: str


@asynccontextmanager
async def running_browser(launch: Launch) -> AsyncIterator[Running]:
    """A browser, until the block is left; then no process and no folder of it is left.

    Raises:
        OSError: It cannot be started.
    """
    folder = tempfile.mkdtemp(prefix="bos-browser-")
    try:
        async with _supervised(launch, folder) as (supervisor, channel):
            reader, writer = await asyncio.open_unix_connection(
                sock=channel, limit=MAX_MESSAGE_BYTES
            )
            devtools = DevTools(reader, writer)
            try:
                async with running_task(devtools.listen(), "browser messages"):
                    yield Running(devtools, supervisor, folder)
            finally:
                writer.transport.abort()
    finally:
        # The supervisor has removed it, unless it could not be started or was killed.
        await _to_the_end(_remove(folder))


@asynccontextmanager
async def _supervised(
    launch: Launch, folder: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, socket.socket]]:
    uid = _UID if os.geteuid() == 0 else None
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            if uid is not None:
                os.chown(folder, uid, uid)
            job = {
                "command": launch.command(folder),
                "environment": {
                    "HOME": folder,
                    "TMPDIR": folder,
                    "PATH": "/usr/bin:/bin",
                    **_NO_BUS,
                },
                "folder": folder,
                "uid": uid,
                "channel_fd": theirs.fileno(),
                "namespaces": launch.namespaces,
                "memory_bytes": launch.memory_bytes,
            }
            supervisor = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_SUPERVISOR), json.dumps(job)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,
            )
        try:
            ours.setblocking(False)
            yield supervisor, ours
        finally:
            await _to_the_end(_stop(supervisor))


async def _to_the_end(ending: Coroutine[Any, Any, None]) -> None:
    """Wait for the clean-up, even while the caller is being cancelled."""
    task = asyncio.ensure_future(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _remove(folder: str) -> None:
    # Processes of a supervisor that was killed write into it until they are dead too.
    for _ in range(_REMOVALS):
        if _is_removed(folder):
            return
        await asyncio.sleep(_PAUSE_S)


def _is_removed(folder: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not os.path.lexists(folder)


async def _stop(supervisor: asyncio.subprocess.Process) -> None:
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    try:
        async with asyncio.timeout(_STOP_S):
            await supervisor.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            supervisor.kill()
        await supervisor.wait()
