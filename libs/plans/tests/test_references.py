"""Resolution of references between steps."""

from decimal import Decimal

import pytest

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
)
from bos.common.v1 import Value, ValueList
from bos_chassis.values import MAX_DEPTH, from_value, make_table, to_value, to_value_map
from bos_plans import (
    MAX_VALUES,
    InputTooLarge,
    References,
    ReferenceUnresolved,
    malformed_references,
    references_of,
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


def references(max_bytes: int = 10_000, **outputs: AgentResult) -> References:
    return References(OUTPUTS | outputs, max_bytes)


def having(**data: object) -> AgentResult:
    return AgentResult(status=AGENT_EXECUTION_STATUS_SUCCEEDED, data=to_value_map(data))


@pytest.mark.requirement("C-16")
def test_references_resolve_with_the_type_of_their_value() -> None:
    number = 9007199254740993
    rows = [{"name": "Asha", "total": Decimal("10.50")}, {"name": "Ravi", "total": None}]
    for text, value in (
        ("@{outputs.s1.n}", number),
        ("n is @{outputs.s1.n}!", f"n is {number}!"),
        ("@{outputs.s1.n}@{outputs.s1.n}", f"{number}{number}"),
        ("@{outputs.s1.deep.a.b}", "found"),
        ("@{outputs.s1.odd.name}", "dots"),
        ("@{outputs.s1.answer}", "Five customers."),
        ("@{outputs.s1.row_count}", 2),
        ("@{outputs.s1.columns}", ["name", "total"]),
        ("@{outputs.s1.rows}", rows),
        ("@{ not one", "@{ not one"),
        (["@{outputs.s1.n}", {"x": "@{outputs.s1.deep}"}], [number, {"x": {"a": {"b": "found"}}}]),
    ):
        assert from_value(references().value(to_value(text))) == value, text


@pytest.mark.requirement("C-17")
def test_unresolvable_references_are_refused() -> None:
    for text in (
        "@{outputs.nowhere.n}",
        "@{outputs.s1.missing}",
        "@{outputs.s1.deep.x}",
        "@{outputs.bad.n}",  # a step that failed
    ):
        with pytest.raises(ReferenceUnresolved):
            references().value(to_value(text))
        with pytest.raises(ReferenceUnresolved):
            references().text(f"see {text}")


def test_references_are_found_in_task_and_inputs() -> None:
    found = step("x", "agent", "use @{outputs.a.n}", deep=[{"k": "and @{outputs.b.m} too"}])
    assert references_of(found) == {"a", "b"}


@pytest.mark.requirement("B-19")
def test_malformed_references_are_found() -> None:
    expected = {
        "@{outputs.a.n}": 0,
        "@{output.a.n}": 1,
        "@{outputs.a}": 1,
        "@{outputs.a.n": 1,
        "@{outputs.1a.n} and @{}": 2,
        "mail me @ home {x}": 0,
    }
    found = {text: len(malformed_references(step("x", "agent", text))) for text in expected}
    assert found == expected


@pytest.mark.parametrize("text", ["@{outputs.wide.x}", "x: @{outputs.wide.x}"])
def test_resolved_references_are_bounded_in_bytes(text: str) -> None:
    found = references(10_000, wide=having(x="x" * 1000))
    assert len(found.value(to_value([text] * 9)).list_value.values) == 9
    with pytest.raises(InputTooLarge, match="larger than 10000 bytes"):
        references(10_000, wide=having(x="x" * 1000)).value(to_value([text] * 10))


def test_bytes_are_counted_over_all_texts_and_values_of_a_step() -> None:
    found = references(2500, wide=having(x="x" * 1000))
    found.text("@{outputs.wide.x}")
    found.value(to_value({"x": "@{outputs.wide.x}"}))
    with pytest.raises(InputTooLarge):
        found.text("@{outputs.wide.x}")


def test_rendered_text_counts_where_it_is_longer_than_its_value() -> None:
    lists = having(x=[None] * 1000)  # 4 bytes each, and "null, " has 6
    size = lists.data.fields["x"].ByteSize()
    assert len(references(6200, lists=lists).text("@{outputs.lists.x}")) == 5998
    with pytest.raises(InputTooLarge):
        references(size + 100, lists=lists).text("@{outputs.lists.x}")


def test_resolved_references_are_bounded_in_values() -> None:
    def wide(count: int) -> References:
        result = having()
        result.data.fields["x"].list_value.CopyFrom(ValueList(values=[Value()] * count))
        return references(10**7, wide=result)

    found = wide(MAX_VALUES - 1)
    for _ in range(3):  # repeated look-ups are counted once
        assert len(found.value(to_value("@{outputs.wide.x}")).list_value.values) == MAX_VALUES - 1
    with pytest.raises(InputTooLarge, match="more than 100000 values"):
        wide(MAX_VALUES).value(to_value("@{outputs.wide.x}"))


def test_rows_are_counted_before_they_are_built() -> None:
    table = make_table(["a", "b"], [[1, 2]] * (MAX_VALUES // 2))
    tall = AgentResult(status=AGENT_EXECUTION_STATUS_SUCCEEDED, table=table)
    for path in ("rows", "table", "rows.a"):
        with pytest.raises(InputTooLarge, match="more than 100000 values"):
            references(10**7, tall=tall).value(to_value(f"@{{outputs.tall.{path}}}"))


def nested(depth: int, inner: object) -> object:
    for _ in range(depth):
        inner = [inner]
    return inner


def test_depths_of_plan_and_output_add_up() -> None:
    found = references(deep=having(x=nested(MAX_DEPTH - 5, "x")))
    found.value(to_value(nested(4, ["@{outputs.deep.x}"])))  # the enclosing list adds one level
    with pytest.raises(InputTooLarge, match="more than 24 deep"):
        found.value(to_value(nested(5, ["@{outputs.deep.x}"])))
