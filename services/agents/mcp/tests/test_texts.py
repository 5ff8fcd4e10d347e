from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_mcp.server.catalogue import tool_name
from bos_mcp.server.schemas import MAX_DEPTH, MAX_NODES, UnusableSchema, reduced

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["type", "properties", "items", "$ref", "anyOf", "enum", "required", "default", "x"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


def test_names_of_tools_are_those_of_the_contract() -> None:
    expected = {
        "read_note": "read_note",
        "readNote": "read_note",
        "Read-Note": "read_note",
        "notes/read.one": "notes_read_one",
        "2fa": "tool_2fa",
        "HTTPGet": "httpget",
        "пример": "tool_266f263f",
        "--": "",
        "a" * 63: "a" * 63,
        "a" * 64: "",
    }
    assert {original: tool_name(original) for original in expected} == expected


@given(JSON)
def test_any_schema_is_reduced_or_refused_within_bounds(given_schema: Any) -> None:
    try:
        schema = reduced(given_schema)
    except UnusableSchema:
        return
    assert schema["type"] == "object"
    nodes, depth = _size(schema)
    assert nodes <= 20 * MAX_NODES
    assert depth <= 3 * (MAX_DEPTH + 2)


def test_references_are_put_in_place_with_what_stands_beside_them() -> None:
    person = {
        "type": "object",
        "properties": {"name": {"type": "string", "minLength": 1}},
        "required": ["name"],
    }
    schema = reduced(
        {
            "type": "object",
            "properties": {"who": {"$ref": "#/$defs/Person", "description": "Whom"}},
            "required": ["who"],
            "additionalProperties": False,
            "$defs": {"Person": person},
        }
    )
    assert schema["properties"] == {"who": {**person, "description": "Whom"}}
    assert (schema["required"], schema["additionalProperties"]) == (["who"], False)
    assert "$defs" not in schema


def test_keywords_whose_check_may_not_end_are_left_to_the_server() -> None:
    schema = reduced(
        {
            "type": "object",
            "properties": {"x": {"type": "string", "pattern": "^(a+)+$", "maxLength": 5}},
            "patternProperties": {"^(b+)+$": {}},
        }
    )
    assert schema["properties"] == {"x": {"type": "string", "maxLength": 5}}
    assert "patternProperties" not in schema


@pytest.mark.parametrize("schema", [None, [], {"type": "array"}, {"required": ["x"]}])
def test_schema_that_describes_no_arguments_is_refused(schema: Any) -> None:
    with pytest.raises(UnusableSchema):
        reduced(schema)


def _size(value: Any) -> tuple[int, int]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    sizes = [_size(each) for each in items]
    return 1 + sum(n for n, _ in sizes), 1 + max((d for _, d in sizes), default=0)
