import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bos.agent.v1 import AgentResult, ExecuteResponse
from bos.common.v1 import Column, ColumnType, Value, ValueMap
from bos_chassis.values import (
    MAX_DEPTH,
    from_value,
    from_value_map,
    make_table,
    render_value,
    table_rows,
    to_value,
    to_value_map,
    unique_names,
    value_to_json,
)

SCALARS: list[Any] = [
    None,
    True,
    False,
    9_007_199_254_740_993,
    2**63 - 1,
    -(2**63),
    0.1,
    Decimal("175206.00"),
    "naïve “quotes”",
    b"\x00\xff",
    date(2024, 2, 29),
    datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("value", SCALARS, ids=repr)
def test_a_scalar_comes_back_with_its_value_and_its_type(value: Any) -> None:
    back = from_value(to_value(value))
    assert back == value
    assert type(back) is type(value)


@settings(deadline=None)  # cores are shared; a slow example is no failure
@given(trees)
def test_any_tree_survives_the_wire(tree: Any) -> None:
    wire = to_value(tree).SerializeToString()
    assert from_value(Value.FromString(wire)) == tree


@settings(deadline=None)  # cores are shared; a slow example is no failure
@given(trees)
def test_any_tree_renders_and_is_json(tree: Any) -> None:
    value = to_value(tree)
    assert isinstance(render_value(value), str)
    json.dumps(value_to_json(value), allow_nan=False)


def test_an_int_beyond_64_bits_becomes_an_exact_decimal() -> None:
    value = to_value(2**63)
    assert value.decimal_value == "9223372036854775808"
    assert from_value(value) == 2**63


def test_a_decimal_is_written_in_plain_notation_with_its_zeros() -> None:
    assert to_value(Decimal("1E+3")).decimal_value == "1000"
    assert to_value(Decimal("1.500")).decimal_value == "1.500"


def test_numeric_nan_of_a_database_survives() -> None:
    assert from_value(to_value(Decimal("NaN"))).is_nan()
    assert math.isnan(from_value(to_value(math.nan)))


@pytest.mark.parametrize("text", ["1E+1000000", "1E-1000000"])
def test_a_decimal_that_would_fill_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="digits"):
        to_value(Decimal(text))


def test_a_moment_is_kept_in_utc_and_a_naive_one_is_refused() -> None:
    ist = timezone(timedelta(hours=5, minutes=30))
    moment = datetime(2024, 1, 1, 0, 0, tzinfo=ist)
    assert from_value(to_value(moment)) == moment
    assert from_value(to_value(moment)).tzinfo is UTC
    with pytest.raises(ValueError, match="time zone"):
        to_value(moment.replace(tzinfo=None))


def test_types_without_a_typed_form_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="timedelta"):
        to_value(timedelta(1))
    with pytest.raises(TypeError, match="keys must be text, not int"):
        to_value({1: "one"})


def test_deepest_value_allowed_can_be_read_back_inside_reply() -> None:
    tree: Any = 1
    for _ in range(MAX_DEPTH):
        tree = {"x": tree}
    reply = ExecuteResponse(result=AgentResult(data=to_value_map({"tree": tree["x"]})))
    assert ExecuteResponse.FromString(reply.SerializeToString()) == reply
    with pytest.raises(ValueError, match="nested"):
        to_value([tree])


def test_an_unset_value_is_none() -> None:
    assert from_value(Value()) is None
    assert render_value(Value()) == "null"
    assert value_to_json(Value()) is None


def test_maps_come_back_sorted_because_protobuf_keeps_no_order() -> None:
    fields = dict.fromkeys("zyxwvutsrq", 1)
    assert list(from_value_map(to_value_map(fields))) == sorted(fields)
    assert from_value_map(ValueMap()) == {}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (-0.0, "0"),
        (1e15, "1000000000000000"),
        (1.5e300, "1.5E+300"),
        (math.nan, "NaN"),
        (Decimal("175206.00"), "175206.00"),
        (True, "true"),
        (b"abc", "(3 bytes)"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, 1, tzinfo=UTC), "2024-02-29T01:00:00Z"),
        (["Acme", "Globex", 2, date(2024, 1, 1)], "Acme, Globex, 2, 2024-01-01"),
        (
            [{"name": 'A"', "revenue": Decimal("1.50"), "on": date(2024, 1, 1)}],
            '[{"name": "A\\"", "on": "2024-01-01", "revenue": 1.50}]',
        ),
    ],
)
def test_values_render_as_people_write_them(value: Any, text: str) -> None:
    assert render_value(to_value(value)) == text


def test_json_is_exact() -> None:
    tree = {"d": Decimal("1.50"), "b": b"\xff", "t": date(2024, 1, 1), "f": 0.5, "l": [math.nan, 1]}
    assert value_to_json(to_value(tree)) == {
        "d": "1.50",
        "b": "/w==",
        "t": "2024-01-01",
        "f": 0.5,
        "l": ["NaN", 1],
    }


def test_a_table_infers_its_column_types_and_counts_its_rows() -> None:
    table = make_table(
        ["id", "amount", "ratio", "odd", "empty", Column(name="kept")],
        [
            (1, Decimal("1.5"), 1, "x", None, 1),
            (2, 3, 0.5, 1, None, 2),
            (None, None, None, None, None, None),
        ],
        truncated=True,
    )
    assert [column.type for column in table.columns] == [
        ColumnType.COLUMN_TYPE_INT64,
        ColumnType.COLUMN_TYPE_DECIMAL,
        ColumnType.COLUMN_TYPE_DOUBLE,
        ColumnType.COLUMN_TYPE_UNSPECIFIED,
        ColumnType.COLUMN_TYPE_UNSPECIFIED,
        ColumnType.COLUMN_TYPE_UNSPECIFIED,
    ]
    assert (table.row_count, table.truncated) == (3, True)
    assert list(table_rows(table)[0].items()) == [
        ("id", 1),
        ("amount", Decimal("1.5")),
        ("ratio", 1),
        ("odd", "x"),
        ("empty", None),
        ("kept", 1),
    ]


def test_a_table_refuses_ragged_rows_and_repeated_names() -> None:
    with pytest.raises(ValueError, match="row 1 has 1 cells where there are 2 columns"):
        make_table(["a", "b"], [(1, 2), (1,)])
    with pytest.raises(ValueError, match="repeated: a"):
        make_table(["a", "a"], [])


def test_repeated_names_are_made_unique() -> None:
    assert unique_names(["id", "id", "id_2", "", "id"]) == [
        "id",
        "id_2",
        "id_2_2",
        "column_4",
        "id_3",
    ]
