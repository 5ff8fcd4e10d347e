"""The interpreter tier: a pool of worker processes that run one checked program at a time.

Every program gets a fresh session in a worker that has no environment, no files and no network.
The worker itself watches time, memory and recursion; what it cannot watch (one endless operation
on huge numbers) ends with the worker, which the pool replaces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, date, datetime
from importlib import resources
from typing import Any

import pydantic_monty as monty

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse, Tier
from bos_chassis.values import to_value
from bos_errors import ConfigurationError, ResourceExhausted
from bos_sandbox.concurrency import ConcurrencyLimiter
from bos_sandbox.limits import RunLimits
from bos_sandbox.outcomes import ended, limit, result_problem
from bos_sandbox.output import Output, OutputLimitExceeded
from bos_sandbox.settings import SandboxSettings
from bos_sandbox.validate import LAST_VALUE, Program

_SUCCEEDED = ProgramStatus.PROGRAM_STATUS_SUCCEEDED
_FAILED = ProgramStatus.PROGRAM_STATUS_FAILED
_VIOLATION = ProgramStatus.PROGRAM_STATUS_VIOLATION

_PROGRAM_FRAME = "<python-input-1>"  # feed 0 is the prelude, feed 2 collects the values
_CLOCK_CALLS = frozenset({"date.today", "datetime.now", "time.time"})
_LIMIT_OF_EXCEPTION: dict[type[BaseException], str] = {
    TimeoutError: "time",
    MemoryError: "memory",
    RecursionError: "recursion",
}


class Interpreter:
    """Runs programs; made by :func:`open_interpreter`."""

    def __init__(self, pool: monty.AsyncMonty, settings: SandboxSettings, prelude: str) -> None:
        self._pool = pool
        self._settings = settings
        self._prelude = prelude
        self._limiter = ConcurrencyLimiter(settings.max_workers, settings.queue_timeout_s)

    async def run(
        self, program: Program, inputs: Mapping[str, Any], limits: RunLimits
    ) -> RunProgramResponse:
        """Run ``program`` with ``inputs`` as its variables, from a fresh state.

        A ``today`` among the inputs sets the program's clock; without one it has none. Cancelling
        this call kills the worker.

        Raises:
            ResourceExhausted: No worker became free in time.
        """
        started = time.monotonic()
        output = Output(limits.output_bytes)
        async with (
            self._limiter.taken(),
            self._session(limits, inputs.get("today")) as session,
        ):
            try:
                within_s = limits.timeout_s + self._settings.kill_grace_s
                async with asyncio.timeout(within_s) as deadline:
                    write = _ends_at_the_limit(output, deadline)
                    run = _Run(program, inputs, output, write, self._settings, self._prelude)
                    response = await run.perform(session)
            except TimeoutError:
                response = limit("output" if output.exceeded else "time")
        response.stdout, response.stderr = output.texts()
        response.duration.FromNanoseconds(int((time.monotonic() - started) * 1e9))
        response.tier = Tier.TIER_INTERPRETER
        response.exit_code = 0 if response.status == _SUCCEEDED else 1
        return response

    @asynccontextmanager
    async def _session(
        self, limits: RunLimits, today: Any
    ) -> AsyncIterator[monty.AsyncMontySession]:
        session = self._pool.checkout(
            limits={
                "max_feed_duration_secs": limits.timeout_s,
                "max_memory": limits.memory_bytes,
                "max_recursion_depth": self._settings.max_recursion,
                "max_suspensions": 100,
            },
            assert_message_annotations=False,
            os_policy={
                "datetime": _clock(today),
                "sleep": "zero",
                # The same program on the same inputs gives the same result, simulations included.
                "random_start": {"seed": 0},
            },
        )
        try:
            await session.__aenter__()
        except TimeoutError:
            raise ResourceExhausted(
                "All sandbox workers are busy.", reason="SANDBOX_BUSY", retry_after_s=1
            ) from None
        try:
            yield session
        finally:
            await session.__aexit__(None, None, None)


class _Run:
    """One run of one program in one session."""

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        output: Output,
        write: Callable[[str, str], None],
        settings: SandboxSettings,
        prelude: str,
    ) -> None:
        self._program = program
        self._inputs = dict(inputs)
        self._output = output
        self._write = write
        self._settings = settings
        self._prelude = prelude
        self._refused: str | None = None

    async def perform(self, session: monty.AsyncMontySession) -> RunProgramResponse:
        try:
            await session.feed_run(self._prelude, os=self._refuse_call)
            await session.feed_run(
                self._program.source_keeping_last_value,
                inputs=self._inputs,
                print_callback=self._write,
                os=self._refuse_call,
            )
            collected = await session.feed_run(self._collector(), os=self._refuse_call)
        except monty.MontyError as error:
            return self._ended_by(error)
        if self._refused is not None:
            return self._refusal()
        return _response(collected)

    def _collector(self) -> str:
        # Names of inputs are identifiers, checked at the edge; repr() quotes them all the same.
        budget = self._settings.result_bytes
        return f"_bos_collect({LAST_VALUE}, locals(), {sorted(self._inputs)!r}, {budget})"

    def _refuse_call(self, *, name: str, **_: Any) -> Any:
        """Answer calls that leave the interpreter: none is allowed, and trying is remembered."""
        if self._refused is None or name not in _CLOCK_CALLS:
            self._refused = name
        return monty.NOT_HANDLED

    def _refusal(self) -> RunProgramResponse:
        name = self._refused or ""
        if name in _CLOCK_CALLS:
            what = "the program has no clock; pass the date as the input today"
            return ended(_FAILED, "ClockUnavailable", what)
        return ended(_VIOLATION, "system_call", f"the program tried to call {name}")

    def _ended_by(self, error: monty.MontyError) -> RunProgramResponse:
        if self._output.exceeded:
            return limit("output")
        if self._refused is not None:
            return self._refusal()
        if isinstance(error, monty.MontyCrashedError):
            if error.timed_out:
                return limit("time")
            return limit("worker")
        cause = error.exception()
        for exception, name in _LIMIT_OF_EXCEPTION.items():
            if isinstance(cause, exception):
                return limit(name)
        kind = type(cause).__name__
        text = f"{_line(error)}{kind}: {cause}" if str(cause) else f"{_line(error)}{kind}"
        return ended(_FAILED, kind, text)


@asynccontextmanager
async def open_interpreter(settings: SandboxSettings) -> AsyncIterator[Interpreter]:
    """The interpreter with its workers warm.

    Raises:
        ConfigurationError: The workers do not start on this machine.
    """
    pool = monty.AsyncMonty(
        min_processes=min(settings.warm_workers, settings.max_workers),
        max_processes=settings.max_workers,
        checkout_timeout=settings.queue_timeout_s,
        # Behind our own timers, so that a defect in them cannot occupy a worker indefinitely.
        request_timeout=settings.timeout_s + 2 * settings.kill_grace_s,
        max_checkouts_per_worker=settings.runs_per_worker,
        feed_duration_limit_grace=settings.kill_grace_s,
    )
    prelude = resources.files("bos_sandbox").joinpath("prelude.py").read_text("utf-8")
    try:
        await pool.__aenter__()
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(
            "The interpreter's worker program does not start. Reinstall pydantic-monty for this "
            "platform, or set MONTY_BIN to its program.",
            reason="INTERPRETER_UNAVAILABLE",
        ) from error
    try:
        yield Interpreter(pool, settings, prelude)
    finally:
        await pool.__aexit__(None, None, None)


def _ends_at_the_limit(output: Output, deadline: asyncio.Timeout) -> Callable[[str, str], None]:
    """Write to ``output``; the limit moves the deadline of the run to now.

    A worker (pydantic-monty 1.4.0) goes on with its program after an error of its callback, until
    its time is over, and reports the error then.
    """
    loop = asyncio.get_running_loop()

    def end() -> None:
        with suppress(RuntimeError):  # the run has ended in the meantime
            deadline.reschedule(loop.time())

    def write(stream: str, text: str) -> None:
        try:
            output.write(stream, text)
        except OutputLimitExceeded:
            loop.call_soon_threadsafe(end)  # the pool calls from its own threads
            raise

    return write


def _clock(today: Any) -> Any:
    """The instant at which the program's clock stands still, or the policy that it has none."""
    if isinstance(today, str):
        try:
            today = datetime.fromisoformat(today)
        except ValueError:
            return "call_host"
    if isinstance(today, datetime):
        return today
    if isinstance(today, date):
        return datetime(today.year, today.month, today.day, tzinfo=UTC)
    return "call_host"


def _response(collected: dict[str, Any]) -> RunProgramResponse:
    problem = collected["problem"]
    if problem:
        return result_problem(problem, collected["kind"])
    response = RunProgramResponse(status=_SUCCEEDED)
    try:
        response.result.CopyFrom(to_value(collected["result"]))
        for name, value in collected["locals"].items():
            response.locals[name].CopyFrom(to_value(value))
    except (TypeError, ValueError):
        return ended(_FAILED, "ResultError", "the result holds a value that has no typed form")
    return response


def _line(error: monty.MontyError) -> str:
    if not isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
        return ""
    lines = [frame.line for frame in error.traceback() if frame.filename == _PROGRAM_FRAME]
    return f"line {lines[-1]}: " if lines else ""
