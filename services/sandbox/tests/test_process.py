"""The process tier of a real service: values, policy, pool, limits, cancelling."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from sandbox_client import LIMITS, Sandbox, open_sandbox

from bos.sandbox.v1 import GetCapabilitiesRequest, Limits, ProgramStatus, RunProgramRequest, Tier
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value
from bos_sandbox.service import serve
from bos_sandbox.settings import SandboxSettings
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_EXCEEDED = ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED
SUCCEEDED = ProgramStatus.PROGRAM_STATUS_SUCCEEDED
FAILED = ProgramStatus.PROGRAM_STATUS_FAILED
VIOLATION = ProgramStatus.PROGRAM_STATUS_VIOLATION
ANY = Tier.TIER_UNSPECIFIED
PANDAS = "import pandas as pd\n"
NUMPY = "import numpy as np\n"


async def test_tier_is_available_and_names_its_modules(isolated: Sandbox) -> None:
    reply = await isolated.stub.GetCapabilities(GetCapabilitiesRequest())
    process = next(one for one in reply.tiers if one.tier == Tier.TIER_PROCESS)
    assert process.available, process.reason
    imports = "\n".join(f"import {name}" for name in process.modules)
    assert "pandas" in process.modules
    assert await isolated.result(f"{imports}\n1") == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import enum\nclass C(enum.Enum):\n    A = 'a'\n[C.A]", ["a"]),
        (NUMPY + "[np.int8(3), np.float32(1.5), np.bool_(True)]", [3, 1.5, True]),
        (NUMPY + "np.array(['2025-01-01', 'NaT'], dtype='M8[D]')", [date(2025, 1, 1), None]),
        (
            NUMPY + "np.datetime64('2025-01-01T10:00:00.123456789')",
            datetime(2025, 1, 1, 10, 0, 0, 123456, tzinfo=UTC),
        ),
        (NUMPY + "np.array([Decimal_one], dtype=object)", [Decimal("1.10")]),
        (PANDAS + "pd.Timestamp('2025-01-01 10:00', tz='Europe/Berlin')",
         datetime(2025, 1, 1, 9, tzinfo=UTC)),
        (PANDAS + "[pd.NaT, pd.NA, pd.Timedelta(days=1), pd.Period('2025-01')]",
         [None, None, "1 days 00:00:00", "2025-01"]),
        (PANDAS + "pd.Series([1.5], index=['a'])", {"a": 1.5}),
        (PANDAS + "pd.DataFrame({'n': [1, 2], 't': ['a', None]})",
         [{"n": 1, "t": "a"}, {"n": 2, "t": None}]),
        (PANDAS + "pd.DataFrame({'k': ['a', 'b', 'a'], 'v': [1, 2, 3]}).groupby('k').sum()",
         [{"k": "a", "v": 4}, {"k": "b", "v": 2}]),
        (PANDAS + "pd.DataFrame({'d': pd.to_datetime(['2025-01-01', None])})",
         [{"d": datetime(2025, 1, 1, tzinfo=UTC)}, {"d": None}]),
        (PANDAS + "pd.DataFrame({'a': []})", []),
    ],
)  # fmt: skip
async def test_python_numpy_and_pandas_become_plain_data(
    isolated: Sandbox, code: str, expected: Any
) -> None:
    code = code.replace("Decimal_one", "given")
    result = await isolated.result(code, {"given": Decimal("1.10")})
    if code.endswith("'t': ['a', None]})"):
        result[1]["t"] = None if result[1]["t"] != result[1]["t"] else result[1]["t"]
    assert result == expected


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError", "line 2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "SyntaxError", "line 1: "),
        ("lambda: 0", "ResultError", "the result is not data"),
        ("{1: 1, '1': 2}", "ResultError", "two keys"),
        ("x = []\nfor _ in range(30): x = [x]\nx", "ResultError", "the result is nested"),
        ("'\\ud800'", "ResultError", "the result holds"),
        ("raise SystemExit('no')", "SystemExit", "SystemExit: no"),
        ("raise PermissionError('mine')", "PermissionError", "line 1: PermissionError: mine"),
        ("from datetime import date\ndate.today()", "ClockUnavailable", "line 2: Clock"),
    ],
)
async def test_failure_names_its_cause_and_line(
    isolated: Sandbox, code: str, kind: str, message: str
) -> None:
    response = await isolated.run(code)
    assert (response.status, response.error_type) == (ProgramStatus.PROGRAM_STATUS_FAILED, kind)
    assert response.error_message.startswith(message)
    assert response.exit_code == 1
    assert response.tier == Tier.TIER_PROCESS


async def test_an_exit_code_is_kept(isolated: Sandbox) -> None:
    assert (await isolated.run("raise SystemExit(3)")).exit_code == 3
    assert (await isolated.run("import os\nos._exit(7)")).exit_code == 7
    ended = await isolated.run("result = 5\nraise SystemExit")
    assert (ended.status, from_value(ended.result)) == (SUCCEEDED, 5)


async def test_output_locals_time_and_memory_are_reported(isolated: Sandbox) -> None:
    code = "import sys\nprint('ü')\nprint('oops', file=sys.stderr)\nx = given / 4\n_y = 1\n"
    response = await isolated.run(code + "block = bytearray(20_000_000)\ndel block", {"given": 10})
    assert (response.stdout, response.stderr) == ("ü\n", "oops\n")
    assert {name: from_value(value) for name, value in response.locals.items()} == {"x": 2.5}
    assert response.duration.ToMilliseconds() > 0
    assert response.peak_memory_bytes > 20_000_000


@pytest.mark.parametrize(
    "today", [date(2024, 5, 6), "2024-05-06", datetime(2024, 5, 6, 12, tzinfo=UTC)]
)
async def test_all_clocks_stand_at_the_input_today(isolated: Sandbox, today: Any) -> None:
    code = (
        "import time\nfrom datetime import date, datetime, timezone\nimport pandas as pd\n"
        "moments = [date.today(), datetime.now(), datetime.now(timezone.utc), datetime.today(),\n"
        "    datetime.utcnow(), pd.Timestamp.now(), pd.Timestamp('now'), pd.Timestamp.today(),\n"
        "    datetime.fromtimestamp(time.time()), datetime(*time.localtime()[:3])]\n"
        "sorted({(m.year, m.month, m.day) for m in moments}), time.strftime('%Y'), date.today()"
    )
    assert await isolated.result(code, {"today": today}) == [
        [[2024, 5, 6]],
        "2024",
        date(2024, 5, 6),
    ]


async def test_random_numbers_are_reproducible(isolated: Sandbox) -> None:
    code = (
        "import random, numpy as np\n"
        "[random.random(), float(np.random.rand()), hash('x'), list({'a', 'b', 'c'})]"
    )
    assert await isolated.result(code) == await isolated.result(code)


@pytest.mark.parametrize(
    ("code", "asked", "tier", "status"),
    [
        ("(5).bit_length()", ANY, Tier.TIER_PROCESS, SUCCEEDED),
        ("1 / 0", ANY, Tier.TIER_INTERPRETER, FAILED),
        ("import os", ANY, Tier.TIER_INTERPRETER, VIOLATION),
        ("import statistics\nimport os", ANY, Tier.TIER_INTERPRETER, VIOLATION),
        ("import numpy as np\nnp.__loader__", ANY, Tier.TIER_INTERPRETER, VIOLATION),
        ("import statistics", Tier.TIER_INTERPRETER, Tier.TIER_INTERPRETER, FAILED),
    ],
)
async def test_policy_decides_the_tier_without_a_request(
    isolated: Sandbox, code: str, asked: Any, tier: Any, status: Any
) -> None:
    count = isolated.telemetry.registry.get_sample_value
    before = count("bos_sandbox_second_runs_total") or 0
    response = await isolated.run(code, tier=asked)
    assert (response.tier, response.status) == (tier, status), response
    second = (count("bos_sandbox_second_runs_total") or 0) - before
    assert second == (tier == Tier.TIER_PROCESS)


@pytest.mark.parametrize(
    ("code", "limits", "within"),
    [
        ("import time\ntime.sleep(0.05)", Limits(timeout=Duration(seconds=30)), 1),
        ("import time\ntime.sleep(30)", Limits(timeout=Duration(nanos=100_000_000)), 0),
        ("x = 'a' * 2_000_000\n1", Limits(memory_bytes=4_000_000), 1),
        ("x = 'a' * 5_000_000\n1", Limits(memory_bytes=4_000_000), 0),
        ("open('x', 'wb').write(b'x' * 4_000_000)\n1", None, 1),
        ("open('x', 'wb').write(b'x' * 4_200_000)\n1", None, 0),
        *LIMITS,
    ],
)
async def test_both_sides_of_each_limit(
    isolated: Sandbox, code: str, limits: Limits | None, within: int
) -> None:
    response = await isolated.run(code, limits=limits)
    assert response.status == (SUCCEEDED if within else LIMIT_EXCEEDED), response.error_message


async def test_a_request_cannot_raise_a_limit(
    isolated: Sandbox, process_settings: SandboxSettings
) -> None:
    generous = Limits(timeout=Duration(seconds=60), memory_bytes=2**40, output_bytes=2**40)
    for code, limit in (("'a' * 10**9", "memory"), ("print('x' * 10**6)", "output")):
        assert (await isolated.run(code, limits=generous)).error_type == limit
    hurried = process_settings.model_copy(update={"timeout_s": 1.0})
    async with open_sandbox(hurried, Tier.TIER_PROCESS) as opened:
        assert (await opened.run("while True: pass", limits=generous)).error_type == "time"


async def test_a_passed_deadline_kills_the_program(
    isolated: Sandbox, inmates: Callable[[], set[int]]
) -> None:
    request = RunProgramRequest(code="while True: pass", tier=Tier.TIER_PROCESS)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await isolated.stub.RunProgram(request, timeout=0.5)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: not inmates())


async def test_a_warm_interpreter_serves_one_program_and_is_replaced(
    process_settings: SandboxSettings, inmates: Callable[[], set[int]]
) -> None:
    warm = process_settings.model_copy(update={"process_warm_workers": 1})
    async with open_sandbox(warm, Tier.TIER_PROCESS) as sandbox:
        value = sandbox.telemetry.registry.get_sample_value
        # A program that comes before one waits gets an interpreter of its own, and this one stays.
        await eventually(lambda: value("bos_sandbox_process_waiting") == 1)
        before = inmates()
        assert before
        assert await sandbox.result("import pandas as pd\nint(pd.Series([1]).sum())") == 1
        assert value("bos_sandbox_process_start_seconds_count", {"warm": "true"}) == 1
        await eventually(lambda: value("bos_sandbox_process_waiting") == 1)
        # It was closed before its answer came.
        after = inmates()
        assert after
        assert not after & before
    assert not inmates()


async def test_no_interpreter_outlives_the_service(
    process_settings: SandboxSettings, inmates: Callable[[], set[int]]
) -> None:
    warm = process_settings.model_copy(update={"process_warm_workers": 2})
    telemetry = Telemetry.for_tests()
    value = telemetry.registry.get_sample_value
    async with serve(warm, telemetry):
        await eventually(lambda: value("bos_sandbox_process_waiting") == 2)
        assert inmates()
    assert not inmates()
    assert value("bos_sandbox_process_waiting") == 0
