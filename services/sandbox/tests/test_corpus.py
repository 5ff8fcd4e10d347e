"""Legitimate programs give what CPython gives, in the tier that the policy chooses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cpython_programs import INPUTS, as_cpython
from sandbox_client import open_sandbox

from bos.sandbox.v1 import ProgramStatus, Tier
from bos_chassis.values import from_value, to_value
from bos_sandbox.process_tier.inside.export import export

if TYPE_CHECKING:
    from sandbox_client import Sandbox

    from bos_sandbox.settings import SandboxSettings

pytestmark = pytest.mark.requirement("F-02")

_TEXT = Path(__file__).with_name("legitimate_programs.txt").read_text("utf-8")
PROGRAMS = [program.strip("\n") for program in _TEXT.split("-----\n")[1:]]


def exactly(value: Any) -> str:
    """Text that distinguishes 1 from 1.0."""
    return repr(from_value(to_value(export(value, 10**6))))


def test_the_corpus_is_large() -> None:
    assert len(set(PROGRAMS)) == len(PROGRAMS) >= 160  # and 80 more in test_programs.py


@pytest.mark.requirement("F-02")
async def test_most_programs_need_the_interpreter_only(settings: SandboxSettings) -> None:
    """With the 80 of test_programs.py more than 200 give there what CPython gives."""
    equal = 0
    async with open_sandbox(settings, Tier.TIER_INTERPRETER) as sandbox:
        for code in PROGRAMS:
            response = await sandbox.run(code, INPUTS)
            if response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED:
                assert repr(from_value(response.result)) == exactly(as_cpython(code)[0]), code
                equal += 1
    assert equal >= 125


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("code", PROGRAMS)
async def test_a_program_gives_what_cpython_gives(isolated: Sandbox, code: str) -> None:
    expected, printed = as_cpython(code)
    response = await isolated.run(code, INPUTS, tier=Tier.TIER_UNSPECIFIED)
    assert response.status == ProgramStatus.PROGRAM_STATUS_SUCCEEDED, response
    assert repr(from_value(response.result)) == exactly(expected), Tier.Name(response.tier)
    assert response.stdout == printed
