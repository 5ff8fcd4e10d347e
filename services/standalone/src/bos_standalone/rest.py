"""The REST gateway as a child process: found, started, listened to, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bos_chassis.errors import ConfigurationError, Unavailable

if TYPE_CHECKING:
    from asyncio import StreamReader
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping

    from structlog.typing import FilteringBoundLogger

BINARY_NAME = "bos-rest"
DEFAULT_PORT = 8000
# Where `make rest` builds it, if this package is installed from a checkout.
_BUILT = Path(__file__).parents[4] / "build" / BINARY_NAME
_HOST = "127.0.0.1"
_START_TIMEOUT_S = 30.0
_STOP_MARGIN_S = 5.0
_LINE_BYTES = 256 * 1024
_PASSED_ON = ("BOS_REST_", "BOS_LOG_LEVEL", "BOS_OTLP_ENDPOINT", "BOS_TRACE_SAMPLE_RATIO")
_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Rest:
    """A running REST gateway."""

    address: str
    """Where it listens, as ``host:port``."""

    @property
    def url(self) -> str:
        """Where browsers and curl find it."""
        return f"http://{self.address}"


def behind_proxies() -> bool:
    """Whether the environment, which REST is given, names proxies in front of it."""
    return bool(os.environ.get("BOS_REST_TRUSTED_PROXIES"))


def find_binary(wanted: Path | None) -> Path | None:
    """The program to start: the one that is wanted, the one built here, or one on the PATH.

    Raises:
        ConfigurationError: what is wanted is not a program.
    """
    if wanted is not None:
        if not os.access(wanted, os.X_OK) or wanted.is_dir():
            raise ConfigurationError(
                f"BOS_STANDALONE_REST_BINARY: {wanted} is not a program; `make rest` builds one."
            )
        return wanted.absolute()
    if os.access(_BUILT, os.X_OK):
        return _BUILT
    found = shutil.which(BINARY_NAME)
    return Path(found) if found else None


@asynccontextmanager
async def serve_rest(
    binary: Path,
    *,
    gateway_target: str,
    identity_target: str = "",
    memory_target: str = "",
    documents_target: str = "",
    api_key: str = "",
    signing_key: Path | None = None,
    host: str = _HOST,
    ports: tuple[int, ...],
    grace_s: float,
    log: FilteringBoundLogger,
) -> AsyncIterator[Rest]:
    """Run ``binary`` until the context is left; its end before that ends the context.

    Args:
        binary: The program.
        gateway_target: What it stands in front of.
        identity_target: Where identity is; empty leaves its paths out.
        memory_target: Where memory is; empty leaves its paths out.
        documents_target: Where documents is; empty leaves its paths out.
        api_key: The only key that it lets pass; empty leaves that to gateway and identity, which
            accept access tokens as well.
        signing_key: File with the key by which services know its calls; None: they do not.
        host: Address to bind.
        ports: Ports to try, in this order; 0 takes any.
        grace_s: Time that requests in flight have at the end, in seconds.
        log: Gets what it says.

    Raises:
        ConfigurationError: it refused its settings, or none of the ports is free.
        Unavailable: it did not start, or, later, ended by itself.
    """
    targets = {
        "GATEWAY": gateway_target,
        "IDENTITY": identity_target,
        "MEMORY": memory_target,
        "DOCUMENTS": documents_target,
    }
    process, address = await _start_on_one_of(
        ports, binary, _environment(targets, api_key, signing_key, host, grace_s)
    )
    assert process.stderr is not None
    try:
        # The group cancels this task, and with it whoever waits inside, if the process ends.
        async with asyncio.TaskGroup() as tasks:
            said = tasks.create_task(_forward(process.stderr, log))
            watch = tasks.create_task(_fail_when_ended(process))
            yield Rest(address)
            watch.cancel()
            await _stop(process, grace_s)
            await said
    finally:
        await _stop(process, 0.0)


async def _start_on_one_of(
    ports: tuple[int, ...], binary: Path, environment: Mapping[str, str]
) -> tuple[Process, str]:
    for port in ports[:-1]:
        try:
            return await _start(binary, {**environment, "BOS_REST_PORT": str(port)})
        except ConfigurationError:
            continue  # most likely taken; if not, the last attempt says so again
    return await _start(binary, {**environment, "BOS_REST_PORT": str(ports[-1])})


async def _start(binary: Path, environment: Mapping[str, str]) -> tuple[Process, str]:
    process = await asyncio.create_subprocess_exec(
        binary,
        env=environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=_LINE_BYTES,
        # Ctrl-C in a terminal is for us; we end it in its turn.
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = await process.stdout.readline()
            if line:
                return process, str(json.loads(line)["address"])
            reason = (await process.stderr.read()).decode("utf-8", "replace").strip()
    except (TimeoutError, ValueError, KeyError):
        await _stop(process, 0.0)
        raise Unavailable(f"{binary} did not say where it listens.") from None
    except BaseException:
        await _stop(process, 0.0)
        raise
    await process.wait()
    raise ConfigurationError(reason or f"{binary} ended at once.")


def _environment(
    targets: Mapping[str, str], api_key: str, signing_key: Path | None, host: str, grace_s: float
) -> dict[str, str]:
    """Its own variables and no other: keys of models and databases are none of its business."""
    passed_on = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
    return {
        "BOS_REST_GRACE_S": str(grace_s),
        **passed_on,
        "BOS_REST_HOST": host,
        **{f"BOS_REST_{name}_TARGET": target for name, target in targets.items()},
        "BOS_AUTH_STATIC_KEY": api_key,
        # The process may work in another folder than this one.
        **({"BOS_REST_SIGNING_KEY_FILE": str(signing_key.absolute())} if signing_key else {}),
        # Should this process be killed, the pipe closes and the child goes as well.
        "BOS_REST_STOP_WITH_STDIN": "true",
    }


async def _fail_when_ended(process: Process) -> None:
    code = await process.wait()
    raise Unavailable(f"{BINARY_NAME} ended by itself with code {code}.")


async def _stop(process: Process, grace_s: float) -> None:
    """End it: orderly within its grace, then at once."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)
    try:
        async with asyncio.timeout(grace_s + _STOP_MARGIN_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _forward(stream: StreamReader, log: FilteringBoundLogger) -> None:
    """Each line that the process writes becomes an event of our log."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue  # longer than any line of ours; the reader has dropped it
        if not line:
            return
        level, event, fields = _parsed(line)
        getattr(log, level)(event, **fields)


def _parsed(line: bytes) -> tuple[str, str, dict[str, Any]]:
    text = line.decode("utf-8", "replace").rstrip()
    try:
        fields = json.loads(text)
        event, level = str(fields.pop("event")), str(fields.pop("level"))
    except (ValueError, KeyError, AttributeError):
        return "error", "rest says", {"text": text}
    for ours in ("timestamp", "service", "logger"):
        fields.pop(ours, None)
    return (level if level in _LEVELS else "info"), event, fields
