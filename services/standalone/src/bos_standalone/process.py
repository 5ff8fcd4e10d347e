"""Process of a standalone: log file, signals, exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from contextlib import ExitStack, asynccontextmanager, redirect_stderr
from typing import TYPE_CHECKING, Literal

from bos_chassis.concurrency.loop import new_event_loop
from bos_chassis.process import EXIT_CONFIGURATION, EXIT_FAILED
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_errors import BosError
from bos_standalone.data_folder import open_log
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    Work = Callable[[Standalone], Awaitable[int]]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_standalone(
    work: Work,
    *,
    log_level: Literal["info", "warning"],
    code_on_signal: int = 0,
    agents: Mapping[str, str] | None = None,
) -> int:
    """Start all services, run ``work``, stop them; returns the exit code.

    The first SIGTERM or SIGINT cancels the work and shuts down in order, the second exits at once.
    Services write to the log file in the data folder.

    Args:
        work: Runs while all services are up; its result is the exit code.
        log_level: Minimum log level, unless BOS_LOG_LEVEL is set.
        code_on_signal: Exit code when a signal ended the work.
        agents: ``module:serve`` of each agent by its name; None: those that are installed.
    """
    try:
        settings = StandaloneSettings.load()
        telemetry = TelemetrySettings.load()
        if "log_level" not in telemetry.model_fields_set:
            telemetry = TelemetrySettings.load(log_level=log_level)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            ended = runner.run(_until_signal(work, settings, telemetry, agents))
            return code_on_signal if ended is None else ended
    except BosError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except Exception:
        traceback.print_exc()
        return EXIT_FAILED


async def _until_signal(
    work: Work,
    settings: StandaloneSettings,
    telemetry: TelemetrySettings,
    agents: Mapping[str, str] | None,
) -> int | None:
    """The result of the work; None if a signal ended it."""
    stopped = False
    main = asyncio.current_task()

    def on_signal(number: int) -> None:
        nonlocal stopped
        if stopped:
            # Not sys.exit: it runs exit handlers, which can hang like the shutdown before it.
            os._exit(128 + number)
        stopped = True
        assert main is not None
        main.cancel()

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        async with _logged(settings, telemetry, agents) as standalone:
            return await work(standalone)
    except asyncio.CancelledError:
        if not stopped:
            raise
        return None


@asynccontextmanager
async def _logged(
    settings: StandaloneSettings, telemetry: TelemetrySettings, agents: Mapping[str, str] | None
) -> AsyncIterator[Standalone]:
    with open_log(settings.data_dir) as file, ExitStack() as stack:
        # Telemetry keeps writing to the stderr of its set-up.
        with redirect_stderr(file):
            shared = stack.enter_context(setup_telemetry("standalone", telemetry))
        async with serve_all(settings, shared, agents=agents) as standalone:
            yield standalone
