from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from bos_llm.fallback import plain_sentence


@pytest.mark.parametrize(
    ("result", "stdout", "sentence"),
    [
        (Decimal("87.50"), "", "The result is 87.50."),
        (0.1 + 0.2, "", "The result is 0.3."),
        ({"share": Decimal("43.7"), "top": 5}, "", "The result is share = 43.7; top = 5."),
        ([1, 2, 3], "", "The result is 1, 2, 3."),
        ([{"a": 1}, {"a": 2}], "", "The result is a table of 2 rows."),
        (None, "half past nine\n", "The program printed: half past nine"),
        (None, "", "The program ran and gave no result."),
        (date(2025, 1, 2), "", "The result is 2025-01-02."),
        ([], "", "The result is an empty list."),
    ],
)
def test_a_result_is_stated_without_a_model(result: Any, stdout: str, sentence: str) -> None:
    assert plain_sentence(result, stdout) == sentence


@pytest.mark.parametrize(("length", "cut"), [(600, False), (601, True)])
def test_a_long_result_is_cut(length: int, cut: bool) -> None:
    said = plain_sentence("x" * length, "")
    assert said == f"The result is {'x' * 600}{'…' if cut else ''}."
