"""Choice of the tier that runs a program; pure, and the only place where that is decided.

* A caller that names a tier gets that tier or a refusal, never another.
* Otherwise the interpreter runs what it knows. What it lacks but is allowed (numpy, pandas,
  statistics, inheritance, yield, …) goes to the process tier.
* A program that fails in the interpreter in a way that may be the interpreter's fault runs once
  more in the process tier, whose word is final. Programs have no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse, Tier
from bos_sandbox.validate import Program, Refusal, check_program

_DOUBTFUL_ERRORS = frozenset(
    {
        "AttributeError",
        "ImportError",
        "ModuleNotFoundError",
        "NameError",
        "NotImplementedError",
        "SyntaxError",
        "TypeError",
        "ValueError",
    }
)
"""How the interpreter fails when it does not know a function, an argument or a format."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Tier that a program runs in."""

    tier: Tier
    refusal: Refusal | None = None
    """In the interpreter: do not run it. In the process tier: say this if that tier is off."""


def choose(asked: Tier, program: Program) -> Choice:
    """The tier for ``program``, of which the caller asked for ``asked``."""
    if asked == Tier.TIER_PROCESS:
        return Choice(Tier.TIER_PROCESS)
    refusal = check_program(program)
    if refusal is not None and refusal.lacking and asked == Tier.TIER_UNSPECIFIED:
        return Choice(Tier.TIER_PROCESS, refusal)
    return Choice(Tier.TIER_INTERPRETER, refusal)


def wants_second_run(asked: Tier, response: RunProgramResponse) -> bool:
    """Whether ``response`` may be the interpreter's own fault, so that CPython has to decide."""
    return (
        asked == Tier.TIER_UNSPECIFIED
        and response.status == ProgramStatus.PROGRAM_STATUS_FAILED
        and response.error_type in _DOUBTFUL_ERRORS
    )
