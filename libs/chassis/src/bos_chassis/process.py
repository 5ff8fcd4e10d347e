"""Running one service as a process: settings, signals, drain, exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bos_chassis.errors import BosError
from bos_chassis.loop import new_event_loop
from bos_chassis.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

S = TypeVar("S", bound=Settings)

EXIT_FAILED = 1
EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h: starting again without a change is pointless
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_service(
    serve: Callable[[S], AbstractAsyncContextManager[Any]],
    settings: type[S],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
) -> NoReturn:
    """Serve until a signal, then leave ``serve``'s context and exit; for a ``__main__.py``.

    Prints one line of JSON to stdout when serving. The first SIGTERM or SIGINT drains, the second
    exits at once. A service that cannot be built ends the process with a message.

    Raises:
        SystemExit: Always: 0 after a drain, 78 for unusable settings, 1 for other failures.
    """
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_serve_until_signal(serve, settings.load()))
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
            # Not sys.exit: whatever hangs in the drain could hang in an orderly exit as well.
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
