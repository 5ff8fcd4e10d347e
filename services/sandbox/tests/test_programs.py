"""Programs give what CPython gives, and their values and errors come back as data."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from cpython_programs import INPUTS, as_cpython
from sandbox_client import VALUES, Sandbox, open_sandbox

from bos.sandbox.v1 import ProgramStatus, Tier
from bos_chassis.values import from_value, to_value
from bos_sandbox.process_tier.inside.export import export
from bos_sandbox.settings import SandboxSettings

pytestmark = pytest.mark.requirement("F-02")

TIERS = {"interpreter": Tier.TIER_INTERPRETER, "process": Tier.TIER_PROCESS}
_TEXT = Path(__file__).with_name("programs.txt").read_text("utf-8")
PROGRAMS = [program.split("\n", 1) for program in _TEXT.split("----- ")[1:]]
"""Tier that the policy chooses, and the program."""


def exactly(value: Any) -> str:
    """Text that distinguishes 1 from 1.0 and Decimal("1.10") from Decimal("1.1")."""
    return repr(from_value(to_value(export(value, 10**6))))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("tier", "code"), PROGRAMS, ids=[str(number) for number in range(len(PROGRAMS))]
)
async def test_program_gives_what_cpython_gives(isolated: Sandbox, tier: str, code: str) -> None:
    expected, printed = as_cpython(code)
    response = await isolated.run(code, INPUTS, tier=Tier.TIER_UNSPECIFIED)
    assert response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED, response
    assert response.tier == TIERS[tier]
    assert repr(from_value(response.result)) == exactly(expected)
    assert response.stdout == printed


async def test_last_expression_precedes_the_variable_result(sandbox: Sandbox) -> None:
    assert await sandbox.result("result = 1\n2") == 2
    assert await sandbox.result("result = 1\nprint(2)") == 1
    assert await sandbox.result("x = 1") is None


@pytest.mark.parametrize("tier", TIERS)
async def test_values_survive_both_directions(settings: SandboxSettings, tier: str) -> None:
    process = settings.model_copy(
        update={"process_enabled": tier == "process", "process_start_timeout_s": 60}
    )
    async with open_sandbox(process, TIERS[tier]) as sandbox:
        assert repr(await sandbox.result("given", {"given": VALUES})) == repr(VALUES)
        assert await sandbox.result("2 ** 200 + 1") == 2**200 + 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("{3, 1, 2}", [1, 2, 3]),
        ("(1, (2, 3))", [1, [2, 3]]),
        ("{1: 'a', 2.5: 'b', (3, 'x'): 'c'}", {"1": "a", "2.5": "b", "3, x": "c"}),
        ("import datetime\ndatetime.datetime(2025, 1, 1)", datetime(2025, 1, 1, tzinfo=UTC)),
        (
            "from collections import namedtuple\nnamedtuple('P', 'x y')(1, 2)",
            {"x": 1, "y": 2},
        ),
        (
            "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\n[P(4)]",
            [{"x": 4}],
        ),
    ],
)
async def test_python_shapes_become_plain_data(sandbox: Sandbox, code: str, expected: Any) -> None:
    assert await sandbox.result(code) == expected


async def test_globals_that_are_data_come_back(sandbox: Sandbox) -> None:
    code = "import math\ndef f(): return 1\nshare = given / 4\n_hidden = 2\nn = f()"
    response = await sandbox.run(code, {"given": 10})
    assert {k: from_value(v) for k, v in response.locals.items()} == {"share": 2.5, "n": 1}


@pytest.mark.requirement("F-04")
async def test_every_program_starts_from_a_fresh_state(sandbox: Sandbox) -> None:
    await sandbox.run("leaked = 1\nimport math\nmath = None\nround = None")
    response = await sandbox.run("leaked")
    assert response.error_type == "NameError"
    assert await sandbox.result("round(2.675, 2)") == 2.67


async def test_random_numbers_are_reproducible(sandbox: Sandbox) -> None:
    code = "import random\n[random.random() for _ in range(3)]"
    assert await sandbox.result(code) == await sandbox.result(code)


@pytest.mark.parametrize(
    "today", [date(2024, 5, 6), "2024-05-06", datetime(2024, 5, 6, 12, tzinfo=UTC)]
)
async def test_clock_stands_at_the_input_today(sandbox: Sandbox, today: Any) -> None:
    code = "from datetime import date, datetime\n(date.today(), datetime.now().date())"
    assert await sandbox.result(code, {"today": today}) == [date(2024, 5, 6), date(2024, 5, 6)]


async def test_without_today_there_is_no_clock(sandbox: Sandbox) -> None:
    response = await sandbox.run("from datetime import date\ndate.today()")
    assert response.error_type == "ClockUnavailable"
    assert "today" in response.error_message
