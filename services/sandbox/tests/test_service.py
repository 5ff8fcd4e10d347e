import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from sandbox_client import LIMITS, Sandbox, descendants, open_sandbox, read

from bos.common.v1 import Value
from bos.sandbox.v1 import GetCapabilitiesRequest, Limits, ProgramStatus, RunProgramRequest, Tier
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, from_rpc_error
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings
from bos_testkit.waiting import eventually

BURNT_TICKS = 8  # of a hundredth of a second each
LIMIT_EXCEEDED = ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED
SUCCEEDED = ProgramStatus.PROGRAM_STATUS_SUCCEEDED


async def error_of(call: Any) -> BosError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_missing_tier_is_refused_with_its_reason(sandbox: Sandbox) -> None:
    reply = await sandbox.stub.GetCapabilities(GetCapabilitiesRequest())
    tiers = {one.tier: one for one in reply.tiers}
    assert tiers[Tier.TIER_INTERPRETER].available
    assert "decimal" in tiers[Tier.TIER_INTERPRETER].modules
    assert not tiers[Tier.TIER_PROCESS].available
    assert "BOS_SANDBOX_PROCESS_ENABLED" in tiers[Tier.TIER_PROCESS].reason
    modules = "\n".join(f"import {name}" for name in tiers[Tier.TIER_INTERPRETER].modules)
    assert await sandbox.result(f"{modules}\n1") == 1
    error = await error_of(sandbox.run("1", tier=Tier.TIER_PROCESS))
    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TIER_UNAVAILABLE")
    assert "BOS_SANDBOX_PROCESS_ENABLED" in error.message


@pytest.mark.parametrize(
    ("code", "name", "value", "field"),
    [
        ("1", "two words", Value(int64_value=1), 'inputs["two words"]'),
        ("1", "class", Value(int64_value=1), 'inputs["class"]'),
        ("1", "_private", Value(int64_value=1), 'inputs["_private"]'),
        ("1", "x", Value(decimal_value="1,5"), 'inputs["x"]'),
        ("", "x", Value(int64_value=1), "code"),
    ],
)
async def test_invalid_request_names_the_field(
    sandbox: Sandbox, code: str, name: str, value: Value, field: str
) -> None:
    request = RunProgramRequest(code=code, inputs={name: value})
    error = await error_of(sandbox.stub.RunProgram(request))
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert error.violations[0].field == field


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError", "line 2: "),
        ("def f(x):\n    return x['a']\n\nf({})", "KeyError", "line 2: "),
        ("def f(:\n", "SyntaxError", "line 1: "),
        ("import statistics", "ModuleNotFoundError", "line 1: "),
        ("x = [1]\ndel x[0]", "UnsupportedSyntax", "line 2: "),
        ("from math import *", "UnsupportedSyntax", "line 1: "),
        ("lambda: 0", "ResultError", "the result is not data"),
        ("{1: 1, '1': 2}", "ResultError", "two keys"),
        ("x = []\nfor _ in range(30): x = [x]\nx", "ResultError", "the result is nested"),
    ],
)
async def test_failure_names_its_cause_and_line(
    sandbox: Sandbox, code: str, kind: str, line: str
) -> None:
    response = await sandbox.run(code)
    assert (response.status, response.error_type) == (ProgramStatus.PROGRAM_STATUS_FAILED, kind)
    assert response.error_message.startswith(line)
    assert response.exit_code == 1


async def test_failure_keeps_the_output_and_a_bounded_message(sandbox: Sandbox) -> None:
    response = await sandbox.run("print('before')\nraise ValueError('x' * 100_000)")
    assert response.stdout == "before\n"
    assert len(response.error_message) <= 500


@pytest.mark.parametrize(
    ("code", "limits", "within"),
    [
        ("x = 0\nfor _ in range(200_000): x += 1", Limits(timeout=Duration(seconds=30)), 1),
        ("x = 0\nfor _ in range(10**9): x += 1", Limits(timeout=Duration(nanos=100_000_000)), 0),
        ("x = 'a' * 1_000_000", Limits(memory_bytes=4_000_000), 1),
        ("x = 'a' * 5_000_000", Limits(memory_bytes=4_000_000), 0),
        ("def f(n): return n and f(n - 1)\nf(480)", None, 1),
        ("def f(n): return n and f(n - 1)\nf(520)", None, 0),
        ("1 #" + "x" * (16 * 1024 - 3), None, 1),
        *LIMITS,
    ],
    ids=lambda value: None if isinstance(value, Limits) else str(value)[:40],
)
async def test_both_sides_of_each_limit(
    sandbox: Sandbox, code: str, limits: Limits | None, within: int
) -> None:
    response = await sandbox.run(code, limits=limits)
    assert response.status == (SUCCEEDED if within else LIMIT_EXCEEDED), response.error_message


async def test_a_request_cannot_raise_a_limit(settings: SandboxSettings) -> None:
    generous = Limits(timeout=Duration(seconds=60), memory_bytes=2**40, output_bytes=2**40)
    async with open_sandbox(settings.model_copy(update={"timeout_s": 1.0})) as sandbox:
        response = await sandbox.run("while True: pass", limits=generous)
        assert response.error_type == "time"
    async with open_sandbox(settings) as sandbox:
        for code, limit in (("'a' * 10**9", "memory"), ("print('x' * 10**6)", "output")):
            assert (await sandbox.run(code, limits=generous)).error_type == limit


async def test_more_programs_than_workers_wait_for_their_turn(sandbox: Sandbox) -> None:
    replies = await asyncio.gather(*(sandbox.run(f"{n} * 2") for n in range(20)))
    assert [reply.result.int64_value for reply in replies] == [n * 2 for n in range(20)]


async def test_no_free_worker_in_time_is_resource_exhausted(settings: SandboxSettings) -> None:
    busy = settings.model_copy(update={"max_workers": 1, "queue_timeout_s": 0.1})
    async with open_sandbox(busy) as sandbox:
        endless = sandbox.stub.RunProgram(RunProgramRequest(code="while True: pass"))
        await eventually(lambda: len(workers(burning=True)) >= 1)
        error = await error_of(sandbox.run("1"))
        endless.cancel()
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SANDBOX_BUSY")
        assert error.retry_after_s == 1


async def test_cancelling_the_call_kills_the_worker(settings: SandboxSettings) -> None:
    async with open_sandbox(settings.model_copy(update={"max_workers": 1})) as sandbox:
        call = sandbox.stub.RunProgram(RunProgramRequest(code="while True: pass"), timeout=60)
        await eventually(lambda: len(workers(burning=True)) == 1)
        call.cancel()
        await eventually(lambda: not workers(burning=True))
        assert await sandbox.result("1 + 1") == 2


async def test_no_worker_outlives_the_service(settings: SandboxSettings) -> None:
    before = workers()
    async with serve(settings, Telemetry.for_tests()):
        assert workers() - before
    await eventually(lambda: not workers() - before)


@pytest.mark.requirement("R-09")
async def test_a_worker_has_no_environment(
    settings: SandboxSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the process that runs everything knows stays there."""
    monkeypatch.setenv("BOS_TEST_SECRET", "hush")
    async with serve(settings, Telemetry.for_tests()):
        found = [read(f"{pid}/environ") for pid in workers()]
        assert found == [""] * len(found)


async def test_programs_are_counted_by_how_they_ended(sandbox: Sandbox) -> None:
    for code in ("1", "1 / 0", "import os", "'a' * 10**9"):
        await sandbox.run(code)

    def count(status: str, reason: str = "") -> float | None:
        labels = {"tier": "interpreter", "status": status, "reason": reason}
        return sandbox.telemetry.registry.get_sample_value("bos_sandbox_programs_total", labels)

    assert count("succeeded") == count("failed") == 1
    assert count("violation", "import") == count("limit_exceeded", "memory") == 1
    seconds = sandbox.telemetry.registry.get_sample_value(
        "bos_sandbox_program_seconds_count", {"tier": "interpreter", "status": "succeeded"}
    )
    assert seconds == 1


def workers(*, burning: bool = False) -> set[int]:
    """Interpreter processes of this one; ``burning``: the ones that have computed for a while,
    which no worker does that merely starts."""
    found = {pid for pid, words in descendants().items() if "monty" in words}
    return {pid for pid in found if ticks(pid) >= BURNT_TICKS or not burning}


def ticks(pid: int) -> int:
    """Processor time so far."""
    fields = read(f"{pid}/stat").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12]) if fields else 0
