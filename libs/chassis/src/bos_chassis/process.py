"""Running one service as a process: settings, signals, drain, exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn, TypeVar

from bos_chassis.auth.callers import Authenticator, authenticator_from
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.concurrency.loop import new_event_loop
from bos_chassis.settings import AuthSettings, Settings, TelemetrySettings
from bos_chassis.telemetry import Telemetry, setup_telemetry
from bos_errors import BosError

S = TypeVar("S", bound=Settings)
Need = Callable[[Any, Telemetry], AbstractAsyncContextManager[Any]]
"""Opens what a ``serve`` is given by keyword, from the service's settings and telemetry."""

EXIT_FAILED = 1
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h: starting again without a change is pointless
MIGRATE = "migrate"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(
    name: str,
    settings: type[S],
    serve: Callable[..., AbstractAsyncContextManager[Any]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    migrate: Callable[[str], Awaitable[None]] | None = None,
    **needs: Need,
) -> NoReturn:
    """The process of one service: the whole of its ``__main__.py``.

    Reads the settings, sets telemetry up, opens the needs in their order and calls
    ``serve(settings, telemetry, **needs)``; standalone calls the same function. With the argument
    ``migrate`` it brings the service's tables up to date and ends, without serving.

    Args:
        name: Name of the service in logs, traces and run tokens.
        settings: Class of its settings; its field ``telemetry`` is used if there is one.
        serve: Builds the service and serves it until the context is left.
        loop_factory: Makes the event loop.
        migrate: Brings the tables at a PostgreSQL URL up to date; None for a service without.
        needs: What else ``serve`` is given, by parameter, such as ``auth=service_auth``.

    Raises:
        SystemExit: Always, see :func:`run_service`.
    """
    if migrate is not None and sys.argv[1:] == [MIGRATE]:
        _run(lambda loaded: migrate(loaded.store_url), settings, loop_factory)

    @asynccontextmanager
    async def process(loaded: S) -> AsyncIterator[Any]:
        own = getattr(loaded, "telemetry", None)
        with setup_telemetry(name, own or TelemetrySettings.load()) as telemetry:
            async with AsyncExitStack() as stack:
                given = {
                    parameter: await stack.enter_async_context(need(loaded, telemetry))
                    for parameter, need in needs.items()
                }
                async with serve(loaded, telemetry, **given) as running:
                    yield running

    run_service(process, settings, loop_factory=loop_factory)


@asynccontextmanager
async def service_auth(_: Settings, telemetry: Telemetry) -> AsyncIterator[Authenticator | None]:
    """Need of a service that works for the gateway, for no step in particular: who may call.

    Raises:
        ConfigurationError: A key is not usable.
    """
    yield authenticator_from(AuthSettings.load(), telemetry.service, "service", telemetry)


def step_auth(
    settings: Any, telemetry: Telemetry
) -> AbstractAsyncContextManager[Authenticator | None]:
    """Need of a service that works for steps: who may call, by run tokens that end with their step.

    Raises:
        ConfigurationError: A key is not usable.
    """
    return open_run_tokens(
        AuthSettings.load(), telemetry.service, telemetry, tls=settings.server.tls
    )


def run_service(
    serve: Callable[[S], AbstractAsyncContextManager[Any]],
    settings: type[S],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
) -> NoReturn:
    """Serve until a signal, then leave ``serve``'s context and exit.

    Prints one line of JSON to stdout when serving. The first SIGTERM or SIGINT drains, the second
    exits at once. A service that cannot be built ends the process with a message.

    Raises:
        SystemExit: Always: 0 after a drain, 78 for unusable settings, 1 for other failures.
    """
    _run(lambda loaded: _serve_until_signal(serve, loaded), settings, loop_factory)


def _run(
    work: Callable[[Any], Awaitable[None]],
    settings: type[Settings],
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> NoReturn:
    """Do ``work`` with the settings and exit with its code."""

    async def working() -> None:
        await work(settings.load())

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(working())
    except BosError as error:
        print(f"{settings.__name__}: {error.message}", file=sys.stderr)
        sys.exit(EXIT_CONFIGURATION)
    except Exception:
        traceback.print_exc()
        sys.exit(EXIT_FAILED)
    sys.exit(0)


async def _serve_until_signal(
    serve: Callable[[S], AbstractAsyncContextManager[Any]], settings: S
) -> None:
    stop = asyncio.Event()
    starting = asyncio.current_task()

    def on_signal(number: int) -> None:
        if stop.is_set():
            # Not sys.exit: what hangs in the drain could hang in an orderly exit as well.
            os._exit(128 + number)
        stop.set()
        if starting is not None:
            starting.cancel()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        async with serve(settings) as running:
            starting = None
            _announce(running)
            await stop.wait()
    except asyncio.CancelledError:
        # A signal during start-up is an ordinary end; anything else that cancels us is not.
        if not stop.is_set():
            raise


def _announce(running: Any) -> None:
    line = {
        "event": "serving",
        "service": getattr(running, "service", None),
        "address": getattr(running, "address", None),
        "metrics_port": getattr(running, "metrics_port", None),
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n")
    sys.stdout.flush()
