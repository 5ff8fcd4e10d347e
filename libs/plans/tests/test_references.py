"""References: what resolves, to what, and what does not."""

from __future__ import annotations

from decimal import Decimal

import pytest

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos_chassis.values import from_value, make_table, to_value, to_value_map
from bos_plans import (
    ReferenceUnresolved,
    malformed_references,
    references_of,
    resolve_text,
    resolve_value,
)
from bos_testkit.plans import step

OUTPUTS = {
    "s1": AgentResult(
        status=AGENT_EXECUTION_STATUS_SUCCEEDED,
        answer="Five customers.",
        table=make_table(["name", "total"], [["Asha", Decimal("10.50")], ["Ravi", None]]),
        data=to_value_map(
            {"n": 9007199254740993, "deep": {"a": {"b": "found"}}, "odd.name": "dots"}
        ),
    ),
    "bad": AgentResult(status=AGENT_EXECUTION_STATUS_FAILED, data=to_value_map({"n": 1})),
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("@{outputs.s1.n}", 9007199254740993),
        ("n is @{outputs.s1.n}!", "n is 9007199254740993!"),
        ("@{outputs.s1.n}@{outputs.s1.n}", "90071992547409939007199254740993"),
        ("@{outputs.s1.deep.a.b}", "found"),
        ("@{outputs.s1.odd.name}", "dots"),
        ("@{outputs.s1.answer}", "Five customers."),
        ("@{outputs.s1.row_count}", 2),
        ("@{outputs.s1.columns}", ["name", "total"]),
        (
            "@{outputs.s1.rows}",
            [{"name": "Asha", "total": Decimal("10.50")}, {"name": "Ravi", "total": None}],
        ),
        ("no reference", "no reference"),
        ("@{ not one", "@{ not one"),
    ],
)
def test_text_resolves_with_its_type_c_16(text: str, value: object) -> None:
    assert from_value(resolve_value(to_value(text), OUTPUTS)) == value


def test_lists_and_maps_resolve_at_any_depth() -> None:
    value = to_value({"list": ["@{outputs.s1.n}", {"x": "@{outputs.s1.deep}"}], "plain": 1})
    assert from_value(resolve_value(value, OUTPUTS)) == {
        "list": [9007199254740993, {"x": {"a": {"b": "found"}}}],
        "plain": 1,
    }


@pytest.mark.parametrize(
    "text",
    ["@{outputs.nowhere.n}", "@{outputs.s1.missing}", "@{outputs.s1.deep.x}", "@{outputs.bad.n}"],
    ids=["unknown step", "unknown field", "unknown inner field", "step that failed"],
)
def test_reference_to_what_is_not_there_is_refused_c_17(text: str) -> None:
    with pytest.raises(ReferenceUnresolved):
        resolve_value(to_value(text), OUTPUTS)
    with pytest.raises(ReferenceUnresolved):
        resolve_text(f"see {text}", OUTPUTS)


def test_references_are_found_in_task_and_inputs() -> None:
    found = step("x", "agent", "use @{outputs.a.n}", deep=[{"k": "and @{outputs.b.m} too"}])
    assert references_of(found) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "malformed"),
    [
        ("@{outputs.a.n}", 0),
        ("@{output.a.n}", 1),
        ("@{outputs.a}", 1),
        ("@{outputs.a.n", 1),
        ("@{outputs.1a.n} and @{}", 2),
        ("mail me @ home {x}", 0),
    ],
)
def test_malformed_references_are_found_b_19(text: str, malformed: int) -> None:
    assert len(malformed_references(step("x", "agent", text))) == malformed
