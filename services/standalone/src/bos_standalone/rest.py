"""REST gateway as a child process: find the program, start it, forward its log, stop it."""

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

from bos_errors import ConfigurationError, Unavailable

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
    """Address of a running REST gateway."""

    address: str
    """Where it listens, as ``host:port``."""

    @property
    def url(self) -> str:
        """Base URL for HTTP clients."""
        return f"http://{self.address}"


def behind_proxies() -> bool:
    """Whether BOS_REST_TRUSTED_PROXIES names proxies in front of REST."""
    return bool(os.environ.get("BOS_REST_TRUSTED_PROXIES"))


def find_binary(wanted: Path | None) -> Path | None:
    """Path of the REST program: the configured one, the one built here, or one on the PATH.

    Raises:
        ConfigurationError: the configured path is not an executable.
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
    files_target: str = "",
    protocols_target: str = "",
    api_key: str = "",
    signing_key: Path | None = None,
    session_keys: Path | None = None,
    console_context: Mapping[str, str] | None = None,
    host: str = _HOST,
    ports: tuple[int, ...],
    grace_s: float,
    log: FilteringBoundLogger,
) -> AsyncIterator[Rest]:
    """Run ``binary`` until the context is left; an earlier exit raises in the context.

    Args:
        binary: The program.
        gateway_target: Address of the gateway.
        identity_target: Address of identity; empty leaves its paths out.
        memory_target: Address of memory; empty leaves its paths out.
        documents_target: Address of documents; empty leaves its paths out.
        files_target: Address of workspaces; empty leaves their paths out.
        protocols_target: Address of the protocols service; empty leaves their paths out.
        api_key: The only accepted API key; empty leaves the check to gateway and identity, which
            accept access tokens as well.
        signing_key: File with the key that signs client addresses for the services; None: none.
        session_keys: File with the keys that seal cookies of browsers; None: one of each start.
        console_context: Context that the web console sends with each question; None: none.
        host: Address to bind.
        ports: Ports to try, in this order; 0 takes any.
        grace_s: Time for requests in flight at shutdown, in seconds.
        log: Receives its log lines.

    Raises:
        ConfigurationError: the program refused its settings, or none of the ports is free.
        Unavailable: the program did not start, or exited later.
    """
    targets = {
        "GATEWAY": gateway_target,
        "IDENTITY": identity_target,
        "MEMORY": memory_target,
        "DOCUMENTS": documents_target,
        "FILES": files_target,
        "PROTOCOLS": protocols_target,
    }
    process, address = await _start_on_one_of(
        ports,
        binary,
        {
            **_environment(targets, api_key, signing_key, host, grace_s),
            **_for_console(session_keys, console_context),
        },
    )
    assert process.stderr is not None
    try:
        # An exit of the process cancels this task, and with it the body of the context.
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
            continue  # most likely in use; any other reason comes up again on the last attempt
    return await _start(binary, {**environment, "BOS_REST_PORT": str(ports[-1])})


async def _start(binary: Path, environment: Mapping[str, str]) -> tuple[Process, str]:
    process = await asyncio.create_subprocess_exec(
        binary,
        env=environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=_LINE_BYTES,
        # Ctrl-C in a terminal must reach this process alone, which stops the child in order.
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
    """Environment of the child: its own variables only, without keys of models and databases."""
    passed_on = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
    return {
        "BOS_REST_GRACE_S": str(grace_s),
        **passed_on,
        "BOS_REST_HOST": host,
        **{f"BOS_REST_{name}_TARGET": target for name, target in targets.items()},
        "BOS_AUTH_STATIC_KEY": api_key,
        # The child may have another working directory.
        **({"BOS_REST_SIGNING_KEY_FILE": str(signing_key.absolute())} if signing_key else {}),
        # If this process is killed, the pipe closes and the child exits.
        "BOS_REST_STOP_WITH_STDIN": "true",
    }


def _for_console(session_keys: Path | None, context: Mapping[str, str] | None) -> dict[str, str]:
    """What the child's web console needs; what is configured for it goes before."""
    made = {
        "BOS_REST_SESSION_KEYS_FILE": str(session_keys.absolute()) if session_keys else "",
        "BOS_REST_CONSOLE_CONTEXT": json.dumps(dict(context)) if context else "",
    }
    return {name: os.environ.get(name) or value for name, value in made.items()}


async def _fail_when_ended(process: Process) -> None:
    code = await process.wait()
    raise Unavailable(f"{BINARY_NAME} ended by itself with code {code}.")


async def _stop(process: Process, grace_s: float) -> None:
    """Stop the child: SIGTERM, and SIGKILL after its grace period."""
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
    """Forward the child's log lines to our log."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue  # longer than the reader's limit, which has dropped it
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
