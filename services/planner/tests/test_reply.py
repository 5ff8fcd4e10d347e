"""Parsing of model replies, including those of small models."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bos_chassis.values import to_value
from bos_llm.replies.schema import JsonSchema
from bos_planner.reply import PlannerReply, read_value


def test_json_values_are_parsed() -> None:
    for text, value in (
        ("5", 5),
        ("-2.5", -2.5),
        ("5.0", 5.0),
        ("12345678901234567.89", Decimal("12345678901234567.89")),
        ("true", True),
        ("null", None),
        ('["a", null, 1]', ["a", None, 1]),
        (' {"zip": "00123", "price": 1.10} ', {"zip": "00123", "price": 1.1}),
        ('"5"', "5"),
        ('"null"', "null"),
        ('"[1]"', "[1]"),
        ('"\\"5\\""', '"5"'),
    ):
        read = read_value(text)
        assert read == value, text
        assert type(read) is type(value), text


def test_values_that_do_not_round_trip_stay_text() -> None:
    for text in (
        "",
        "revenue",
        "00123",
        "1.10",
        "1e5",
        "-0",
        " 5 ",
        " true",
        "0.10000000000000000000",
        "12345678901234567890e3",
        '"exact phrase"',
        '"00123"',
        ' "5"',
        '{"a": 1, "a": 2}',
        '[{"a": 1, "b": {"c": 1, "c": 1}}]',
        "+49 30 1234",
        "1,234",
        "2026-01-01..2026-03-31",
        "@{outputs.top.table}",
        '{"rows": @{outputs.top.table}}',
        "NaN",
        "-Infinity",
        "1e999",
        "9" * 5000,
        "[" * 100_000,
        "[" * 40 + "]" * 40,
        '"\\ud800"',
        '{"a": ',
    ):
        assert read_value(text) == text, text[:40]


@given(st.text())
def test_any_parsed_value_can_be_put_into_a_message(text: str) -> None:
    to_value(read_value(text))


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.decimals()))
def test_numbers_are_parsed_only_if_they_round_trip(number: Any) -> None:
    read = read_value(str(number))
    assert str(number) in (str(read), read)


def reply(**fields: Any) -> PlannerReply:
    return PlannerReply.model_validate_json(json.dumps({"intent": "DATA_QA", **fields}))


def test_schema_asks_for_reasons_before_decisions() -> None:
    schema = JsonSchema.of(PlannerReply).schema
    assert list(schema["properties"]) == ["rationale", "intent", "confidence", "entities", "steps"]
    assert schema["$defs"]["NamedValue"]["properties"]["value"]["type"] == "string"


def test_values_of_any_type_and_maps_of_them_are_named_texts() -> None:
    read = reply(entities={"names": ["a", 1]}, steps=[{"agent": "a", "sub_task_input": {"n": 5}}])
    assert [(each.name, each.value) for each in read.entities] == [("names", '["a", 1]')]
    assert [(each.name, each.value) for each in read.steps[0].sub_task_input] == [("n", "5")]


def test_intent_is_parsed_in_other_spellings() -> None:
    for written in ("data_qa", " Data QA ", "INTENT_DATA_QA", "data-qa"):
        assert reply(intent=written).intent == "DATA_QA"


@pytest.mark.requirement("D-01")
def test_unknown_intents_and_invalid_steps_are_refused() -> None:
    steps: list[Any] = ["sql", [5], [{"task": "x"}], [{"agent": "a", "step_id": True}], [None]]
    intents: list[Any] = ["DATA", "", 5, None]
    for fields in (*({"intent": each} for each in intents), *({"steps": each} for each in steps)):
        with pytest.raises(ValidationError):
            reply(**fields)


def test_agent_names_become_steps_only_if_there_are_no_steps() -> None:
    assert [step.agent for step in reply(agents=["sql", "rag"]).steps] == ["sql", "rag"]
    assert [step.agent for step in reply(steps=["sql"]).steps] == ["sql"]
    assert [step.agent for step in reply(agents=["rag"], steps=[{"agent": "sql"}]).steps] == ["sql"]


def test_absent_lists_and_tools_are_empty() -> None:
    read = reply(entities=None, steps=[{"agent": "a", "tool_name": "None", "depends_on": None}])
    assert read.entities == []
    assert (read.steps[0].tool_name, read.steps[0].depends_on) == (None, [])
    assert reply(steps=None).steps == []
    assert reply(steps=[{"agent": "a", "tool_name": " send "}]).steps[0].tool_name == "send"
