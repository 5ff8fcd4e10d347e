"""Validation of programs, their helper, digests of their inputs."""

from decimal import Decimal

import pytest

from bos_code.programs import FRAME_HELPER, input_digests, program_problem, with_helper


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 'a\\d'", ""),
        ("def f(:", "line 1: SyntaxError"),
        ("x = '\0'", "null bytes"),
        ("-" * 20_000 + "1", "more than 16384 bytes"),
        ("x = 1  # harmless\rimport os", "line 1 holds U+000D"),
        ("x = 1\ny = 'a\u202eb'", "line 2 holds U+202E"),
        ("x = 'a\x1b[2Jb'", "line 1 holds U+001B"),
        ("x = 1  # a\u2028y = 2", "line 1 holds U+2028"),
        ("if True:\n\tx = '\u0645\u0646 \u0915\u094d\u200d\u0937'", ""),
    ],
)
def test_only_valid_programs_can_be_proposed(code: str, problem: str) -> None:
    found = program_problem(code, 16 * 1024)
    assert found.startswith(problem) if problem.startswith("line") else problem in found
    assert bool(found) == bool(problem)


def test_the_helper_is_prepended_to_programs_that_call_it() -> None:
    assert with_helper("x = frame(rows)") == FRAME_HELPER + "x = frame(rows)"
    assert with_helper("x = 1") == "x = 1"
    own = "def frame(rows): return rows\nx = frame(rows)"
    assert with_helper(own) == own


def test_digests_of_values_differ_by_type() -> None:
    digests = input_digests({"a": 1, "b": Decimal(1), "c": "1", "d": [1], "e": 1})
    assert len(set(digests.values())) == 4
    assert digests["a"] == digests["e"]
