"""The calculator, and detection of arithmetic in tasks."""

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos.agent.v1 import AgentCard
from bos_computation.calculator import CalculationError, calculate
from bos_computation.card import computation_card
from bos_computation.expressions import find_expression
from bos_plans import canonical_name

pytestmark = pytest.mark.requirement("F-10")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("12.5 * (3 + 4)", Decimal("87.5")),
        ("0.1 + 0.2", Decimal("0.3")),
        ("100 * 1.1", 110),
        ("2 ** 10", 1024),
        ("0 ** 0", 1),
        ("-2 ** 2", -4),
        ("10 / 3", Decimal("3.333333333333333333333333333")),
        ("sqrt(16)", 4),
        ("round(2.675, 2)", Decimal("2.68")),
        ("max(1, 2.5, 2)", Decimal("2.5")),
        ("min(3, 2) + abs(-4)", 6),
        ("sum(1, 2, 3)", 6),
        ("10 ** 300", 10**300),
        ("sqrt(2) ** 2", 2),
        ("1 / 3 * 3", 1),
        ("12.50 + 0", Decimal("12.5")),
    ],
)
def test_the_value_is_exact(expression: str, value: Any) -> None:
    found = calculate(expression)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("10 / 0", "divides by zero"),
        ("(-8) ** 0.5", "no value"),
        ("9 ** 9 ** 9", "300 digits"),
        ("10 ** 301", "300 digits"),
        ("1e9999 * 1", "300 digits"),
        ("round(1.5, 51)", "digits"),
        ("abs(1, 2)", "does not take 2"),
        ("1 +", "not an arithmetic expression"),
        ("True + 1", "not arithmetic"),
        ("__import__('os')", "not arithmetic"),
        ("(1).real", "not arithmetic"),
        ("round(1.5, ndigits=1)", "not arithmetic"),
        ("0x10 + 1", "not a decimal number"),
        ("1+" * 300 + "1", "500 characters"),
        ("-" * 300 + "1", "nested"),
        ("(" * 240 + "1" + ")" * 240, "not an arithmetic expression"),
    ],
)
def test_expressions_without_a_value_give_the_reason(expression: str, why: str) -> None:
    with pytest.raises(CalculationError, match=why):
        calculate(expression)


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_whole_numbers_behave_as_in_python(left: int, right: int) -> None:
    assert calculate(f"{left} + {right}") == left + right
    assert calculate(f"{left} * {right}") == left * right
    if right:
        assert calculate(f"({left}) // ({right})") == left // right
        assert calculate(f"({left}) % ({right})") == left % right


@given(st.text(max_size=80))
def test_any_text_gives_a_number_or_a_calculation_error(text: str) -> None:
    with contextlib.suppress(CalculationError):
        assert isinstance(calculate(text), int | Decimal)
    assert find_expression(text) is None or isinstance(find_expression(text), str)


@pytest.mark.parametrize(
    ("task", "value"),
    [
        ("what is 12.5 * (3 + 4)?", Decimal("87.5")),
        ("What's 15 times 12?", 180),
        ("calculate 17% of 2,450", Decimal("416.5")),
        ("What is 18 percent of 2,45,750 plus 1,200?", 45435),
        ("What is 45% of (200 + 300)?", 225),
        ("Please compute: 3 squared", 9),
        ("2^10 =", 1024),
        ("5 × 7 − 3", 32),
        ("5 x 7", 35),
        ("what is the square root of 144?", 12),
        ("work out 2 to the power of 8", 256),
    ],
)
def test_plain_arithmetic_is_found_in_words(task: str, value: Any) -> None:
    expression = find_expression(task)
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "task",
    [
        "What is the share of the top five customers?",
        "Calculate the difference between 5 and 3 quarters of revenue",
        "200 + 10%",
        "2024-10-12",
        "What is 1,5 + 2?",
        "compute 7 * x",
        "What is 2 + 2 in Roman numerals?",
        "",
    ],
)
def test_more_than_arithmetic_is_left_to_the_model(task: str) -> None:
    assert find_expression(task) is None


@pytest.mark.parametrize(
    "written",
    ["computation_agent", "Utility Agent", "CALCULATOR"],
)
@pytest.mark.requirement("A-08")
def test_aliases_denote_it_case_insensitively(written: str) -> None:
    cards = {"computation": computation_card([]), "code": AgentCard(name="code")}
    assert canonical_name(written, cards) == "computation"


def test_other_roles_are_not_its_own() -> None:
    assert canonical_name("Orchestrator", {"computation": computation_card([])}) is None
