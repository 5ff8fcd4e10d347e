"""Assumptions made instead of a clarifying question are stated in every answer."""

from typing import Any

import pytest

from bos_composer.citations import merge
from bos_composer.deterministic import plain_answer
from bos_composer.numbers import NumberFormat
from bos_composer.outcomes import unstated_assumptions

from . import conftest as make

pytestmark = pytest.mark.requirement("D-04")

ASSUMED = "Only active customers count."
STATED = "Assumed: Only active customers count."


async def test_assumption_omitted_by_the_model_is_added_and_streamed(rig: Any) -> None:
    result = make.top_customers(sources=[make.document("Ledger")], assumptions=[ASSUMED])
    deltas, output = await rig.compose(make.request(result))
    assert output.answer == "".join(deltas) == f"{make.WRITTEN}\n\n{STATED}"
    assert not output.deterministic
    (request,) = rig.model.requests
    assert f"### Assumptions made\n<untrusted>\n- {ASSUMED}" in request.prompt
    assert 'Nothing in the answer may contradict "Assumptions made"' in request.prompt


def test_deterministic_answer_states_assumptions_once() -> None:
    for answer in ("Acme leads.", f"Acme leads. {STATED}"):
        request = make.request(make.result(answer=answer, assumptions=[ASSUMED]))
        text = plain_answer(request, merge(request.results), NumberFormat("en_IN"))
        assert text.count("Only active customers count.") == 1


def test_assumption_stated_in_another_letter_case_is_recognised() -> None:
    results = [make.result(assumptions=[ASSUMED, "Days are in UTC"])]
    assert unstated_assumptions("only  ACTIVE\ncustomers count, days are in UTC", results) == ""
    assert unstated_assumptions("Days are in UTC.", results) == STATED
    assert unstated_assumptions("", [*results, *results]) == (
        "Assumed: Only active customers count; Days are in UTC."
    )


async def test_clarifications_are_shown_with_the_question(rig: Any) -> None:
    turn = {"asked": {"questions": [{"question": "Which?", "options": ["a", "b"]}]}, "reply": "a"}
    await rig.compose(make.request(make.top_customers(), clarifications=[turn]))
    await rig.compose(make.request(make.top_customers()))
    replied, plain = (request.prompt for request in rig.model.requests)
    assert (
        "### Settled with the user\n<untrusted>\nAsked: Which? (offered: a; b)\n</untrusted>\n"
        "The user replied: a"
    ) in replied
    assert "Settled with the user" not in plain
