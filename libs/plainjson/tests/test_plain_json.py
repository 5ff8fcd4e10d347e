"""Plain JSON is the same from Python as over REST: one list of cases holds for both."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import symbol_database
from google.protobuf.json_format import ParseDict

import bos.gateway.v1  # noqa: F401  registers the messages that the cases name
from bos.common.v1 import Column, Value
from bos_plainjson import plain_json

CASES = json.loads(
    (Path(__file__).parents[3] / "tests/contracts/plain_json.json").read_text(encoding="utf-8")
)


@pytest.mark.requirement("A-12")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_plain_form_is_that_of_the_golden_cases(case: dict[str, Any]) -> None:
    kind = symbol_database.Default().GetSymbol(case["type"])
    message = ParseDict(case["message"], kind())
    for rows in ("arrays", "objects"):
        plain = plain_json(message, rows)
        expected = case.get(rows, case["arrays"])  # without rows there is no difference
        assert json.loads(json.dumps(plain)) == expected
        assert of_types(plain) == of_types(expected), "0 and false are equal to Python"


def of_types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: of_types(item) for key, item in value.items()}
    if isinstance(value, list):
        return [of_types(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "number"
    return type(value)


def test_enum_value_of_a_newer_version_is_its_number() -> None:
    column = Column.FromString(b"\x10\x4d")
    assert plain_json(column) == {"name": "", "type": 77, "unit": ""}


def test_time_that_json_cannot_say_is_an_error() -> None:
    value = Value()
    value.timestamp_value.seconds = 1 << 62
    with pytest.raises(ValueError, match="Timestamp"):
        plain_json(value)
