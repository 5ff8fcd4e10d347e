"""Replies of an isolated interpreter, made a response; a hostile program may have written them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from bos.sandbox.v1 import ProgramStatus, RunProgramResponse
from bos_chassis.values import to_value
from bos_sandbox.files import add_files
from bos_sandbox.outcomes import LIMITS, ended, limit, result_problem
from bos_sandbox.process_tier.inside import wire

_FAILED = ProgramStatus.PROGRAM_STATUS_FAILED
_VIOLATION = ProgramStatus.PROGRAM_STATUS_VIOLATION
_VIOLATIONS = ("system_call", "file_access")
_MAX_KIND_CHARS = 80
_MAX_DIGITS = 4300
_KILLED_BY_FILTER, _OUT_OF_CPU = 128 + 31, 128 + 24
_CRASHES = (128 + 4, 128 + 6, 128 + 7, 128 + 8, 128 + 9, 128 + 11)


def response_to(answer: dict[str, Any], result_bytes: int) -> RunProgramResponse:
    """The response for ``answer``; nothing in it is taken on trust."""
    kind, message = _text(answer, "kind")[:_MAX_KIND_CHARS], _text(answer, "message")
    match answer.get("status"):
        case "succeeded":
            response = _succeeded(answer, result_bytes)
        case "result":
            response = result_problem(kind, message)
        case "limit" if kind in LIMITS:
            response = limit(kind)
        case "violation" if kind in _VIOLATIONS:
            response = ended(_VIOLATION, kind, message)
        case "failed":
            response = ended(_FAILED, kind, message)
            code = answer.get("exit_code")
            response.exit_code = code if isinstance(code, int) and 0 < code < 256 else 1
        case _:
            response = ended(_FAILED, "ResultError", "the program answered in place of its runner")
    add_files(response, answer)
    peak = answer.get("peak_bytes")
    if isinstance(peak, int) and 0 < peak < 2**62:
        response.peak_memory_bytes = peak
    return response


def response_to_death(code: int) -> RunProgramResponse:
    """The response for an interpreter that ended with exit code ``code`` and without an answer."""
    if code == _KILLED_BY_FILTER:
        what = "the program made a system call that only an attack has a use for"
        response = ended(_VIOLATION, "system_call", what)
    elif code == _OUT_OF_CPU:
        response = limit("time")
    elif code in _CRASHES or code < 0:
        response = limit("worker")
    else:
        what = f"the program ended its interpreter with exit code {code}"
        response = ended(_FAILED, "Exited", what)
    response.exit_code = code & 0xFF or 1
    return response


def _succeeded(answer: dict[str, Any], result_bytes: int) -> RunProgramResponse:
    response = RunProgramResponse(status=ProgramStatus.PROGRAM_STATUS_SUCCEEDED)
    variables = answer.get("locals")
    try:
        result = wire.decode(answer.get("result"))
        _check(result, _Budget(2 * result_bytes), 0)
        response.result.CopyFrom(to_value(result))
        budget = _Budget(result_bytes)
        for name, value in (variables if isinstance(variables, dict) else {}).items():
            plain = wire.decode(value)
            _check(plain, budget, 0)
            response.locals[name].CopyFrom(to_value(plain))
    except _TooLarge:
        return limit("result_size")
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        what = "the result holds a value that has no typed form"
        return ended(_FAILED, "ResultError", what)
    return response


class _TooLarge(Exception):
    """A value is larger written out than allowed."""


class _Budget:
    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, amount: int) -> None:
        self._left -= amount
        if self._left < 0:
            raise _TooLarge


def _check(value: Any, budget: _Budget, depth: int) -> None:
    """The runner's own check once more, for programs that went around it.

    Raises:
        _TooLarge: ``value`` is too large.
        ValueError: It is nested too deeply.
    """
    if depth > wire.MAX_DEPTH + 1:
        raise ValueError("nested too deeply")
    match value:
        case Decimal():
            size = wire.decimal_size(value)
            if size > _MAX_DIGITS:
                raise _TooLarge
            budget.spend(size)
        case str() | bytes():
            budget.spend(len(value))
        case list():
            for item in value:
                _check(item, budget, depth + 1)
        case dict():
            for name, item in value.items():
                budget.spend(len(name))
                _check(item, budget, depth + 1)
    budget.spend(1)


def _text(answer: dict[str, Any], name: str) -> str:
    value = answer.get(name)
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode("utf-8")
