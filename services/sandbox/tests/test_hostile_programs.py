"""What programs may not do ends as a violation or a limit."""

import asyncio

import pytest
from sandbox_client import Sandbox, open_sandbox

from bos.sandbox.v1 import Limits, ProgramStatus
from bos_sandbox.settings import SandboxSettings

pytestmark = [pytest.mark.security, pytest.mark.requirement("R-03", "F-03", "F-04", "F-05", "T-14")]

VIOLATIONS = {
    "import os": ("import os\nos.system('id')", "import"),
    "import sys": ("import sys\nsys.modules", "import"),
    "import pathlib": ("from pathlib import Path\nPath('/etc/passwd').read_text()", "import"),
    "import behind a harmless one": ("import statistics\nimport os", "import"),
    "relative import": ("from . import secrets", "import"),
    "dynamic import": ("__import__('os')", "name"),
    "eval": ("eval('1 + 1')", "name"),
    "exec": ("exec('x = 1')", "name"),
    "compile": ("compile('1', 'x', 'eval')", "name"),
    "eval as a parameter": ("def f(eval):\n    return eval\neval('1')", "name"),
    "open": ("open('/etc/passwd').read()", "name"),
    "globals": ("globals()", "name"),
    "getattr with a computed name": ("getattr(1, '__cl' + 'ass__')", "name"),
    "getattr under another name": ("g = getattr\ng(1, 'real')", "name"),
    "setattr": ("setattr(int, 'x', 1)", "name"),
    "class walk": ("().__class__.__bases__[0].__subclasses__()", "attribute"),
    "function globals": ("(lambda: 0).__globals__", "attribute"),
    "code object": ("def f(): pass\nf.__code__", "attribute"),
    "builtins by name": ("__builtins__['open']", "attribute"),
    "format string walk": ("'{0.__class__}'.format(1)", "format_string"),
    "format index walk": ("'{0[__class__]}'.format({})", "format_string"),
    "helper in other letters": ("_ｂos_last = 1", "reserved_name"),
    "helper as an attribute": ("x = 1\nx._bos", "reserved_name"),
    "deep nesting": ("x = " + "[" * 100 + "]" * 100, "nesting"),
    "long sum": ("1" + "+1" * 3000, "nesting"),
    "long source": ("1 #" + "x" * (16 * 1024 - 15), "source_size"),  # by a byte, with the print
    "control characters": ("x = 1\x0cimport os", "characters"),
}

LIMITS = {
    "endless loop": ("while True: pass", "time"),
    "endless loop that catches": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "time",
    ),
    "comprehension": ("[i * j for i in range(10**5) for j in range(10**5)]", "memory"),
    "big string": ("'a' * 10**10", "memory"),
    "caught memory error": (
        "try:\n    x = 'a' * 10**9\nexcept MemoryError:\n    x = 'survived'\nx",
        "memory",
    ),
    "huge power": ("9 ** 9 ** 9", "memory"),
    "range to list": ("list(range(10**9))", "memory"),
    "recursion": ("def f(): return f()\nf()", "recursion"),
    "print flood": ("while True: print('x' * 1000)", "output"),
    "caught print flood": (
        "for _ in range(10**6):\n    try:\n        print('x' * 1000)\n    except Exception: pass",
        "output",
    ),
    "result that is endless written out": (
        "a = [0] * 1000\nb = [a] * 1000\nc = [b] * 1000\n[c] * 1000",
        "result_size",
    ),
    "huge number as result": ("3 ** 100_000", "result_size"),
    "short decimals, long written out": (
        "from decimal import Decimal\n[Decimal('1E+131000')] * 1000",
        "result_size",
    ),
    "shadowed helpers": (
        "def len(x): return 0\ndef type(x): return int\nisinstance = lambda *a: False\n"
        "a = [0] * 1000\nb = [a] * 1000\n[b] * 1000",
        "result_size",
    ),
}


# A bound for a call that should be short, wide enough for any machine.
_AT_ONCE_S = 10.0


async def still_serves(sandbox: Sandbox) -> None:
    """A small program gives its result; the service is not held up by the one before."""
    assert await asyncio.wait_for(sandbox.result("1 + 1"), _AT_ONCE_S) == 2


@pytest.mark.parametrize("name", VIOLATIONS)
async def test_a_violation_names_rule_and_line_and_nothing_runs(
    sandbox: Sandbox, name: str
) -> None:
    code, rule = VIOLATIONS[name]
    response = await sandbox.run("print('ran')\n" + code)
    assert (response.status, response.error_type) == (
        ProgramStatus.PROGRAM_STATUS_VIOLATION,
        rule,
    )
    assert response.error_message.startswith("line ")
    assert response.stdout == ""
    assert response.exit_code == 1
    await still_serves(sandbox)


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_ends_the_program_and_the_next_one_runs(sandbox: Sandbox, name: str) -> None:
    code, limit = LIMITS[name]
    limits = Limits()
    if limit == "time":
        limits.timeout.FromSeconds(1)
    response = await sandbox.run(code, limits=limits)
    assert response.status == ProgramStatus.PROGRAM_STATUS_LIMIT_EXCEEDED, response
    assert response.error_type == limit
    await still_serves(sandbox)


@pytest.mark.parametrize(
    "code",
    [
        "while True: print()",
        "print('x' * 2**16)\nwhile True: pass",
        "def f():\n while True:\n  try: print('x')\n  except BaseException: pass\nf()",
    ],
)
async def test_output_flood_ends_by_the_output_limit(settings: SandboxSettings, code: str) -> None:
    # The client gives up first; and the next program needs the only worker.
    longest = settings.model_copy(update={"timeout_s": 300.0, "max_workers": 1})
    async with open_sandbox(longest) as opened:
        response = await opened.run(code)
        assert (response.error_type, len(response.stdout)) == ("output", 2**16)
        await still_serves(opened)


async def test_a_program_goes_on_behind_output_that_fits(sandbox: Sandbox) -> None:
    response = await sandbox.run("print('x' * (2**16 - 1))\nsum(range(10**5))")
    assert (response.result.int64_value, len(response.stdout)) == (4999950000, 2**16)


async def test_line_numbers_are_those_of_the_program(sandbox: Sandbox) -> None:
    response = await sandbox.run("x = 1\ny = 2\n\nz = x.__class__\n")
    assert response.error_message == "line 4: __class__ is not allowed"


async def test_a_flood_keeps_what_was_printed_within_the_limit(sandbox: Sandbox) -> None:
    response = await sandbox.run("for i in range(10**6): print('line', i)")
    assert response.stdout.startswith("line 0\nline 1\n")
    assert len(response.stdout.encode()) <= 64 * 1024
