"""Limits of typed values in requests: depth, number, valid scalars."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

import pytest
from google.protobuf import struct_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.type.date_pb2 import Date

from bos.common.v1 import Value, ValueList, ValueMap
from bos_chassis.values import MAX_DEPTH, from_value, to_value
from bos_plans import MAX_VALUES, Extent, OutOfBounds, extent, is_duration


def nested(depth: int, kind: str) -> Value:
    value = Value(string_value="x")
    for _ in range(depth):
        if kind == "map":
            value = Value(map_value=ValueMap(fields={"k": value}))
        else:
            value = Value(list_value=ValueList(values=[value]))
    return value


def struct(depth: int) -> struct_pb2.Value:
    value = struct_pb2.Value(string_value="x")
    for _ in range(depth):
        outer = struct_pb2.Value()
        outer.struct_value.fields["k"].CopyFrom(value)
        value = outer
    return value


@pytest.mark.parametrize("kind", ["map", "list", "json"])
def test_depth_is_bounded(kind: str) -> None:
    made = struct if kind == "json" else partial(nested, kind=kind)
    assert extent([made(MAX_DEPTH)]) == Extent(MAX_DEPTH + 1, MAX_DEPTH)
    with pytest.raises(OutOfBounds, match="more than 24 deep"):
        extent([made(MAX_DEPTH + 1)])


def test_number_of_values_is_bounded() -> None:
    def values(count: int) -> list[list[Value]]:
        few = [Value()] * (count - 1)
        fields = {str(n): each for n, each in enumerate(few)}
        in_list = Value(list_value=ValueList(values=few))
        return [[*few, Value()], [in_list], [Value(map_value=ValueMap(fields=fields))]]

    assert [extent(each, max_values=100).values for each in values(100)] == [100] * 3
    for each in values(101):
        with pytest.raises(OutOfBounds, match="more than 100 values"):
            extent(each, max_values=100)


def test_counting_stops_at_the_limit() -> None:
    read = 0

    def endless() -> object:
        nonlocal read
        while True:
            read += 1
            yield Value()

    with pytest.raises(OutOfBounds):
        extent(endless())  # type: ignore[arg-type]
    assert read == MAX_VALUES + 1


def test_invalid_scalars_are_refused() -> None:
    passed = []
    for value in (
        Value(date_value=Date(year=2024, month=2, day=30)),
        Value(date_value=Date(year=0, month=1, day=1)),
        Value(timestamp_value=Timestamp(seconds=2**62)),
        Value(timestamp_value=Timestamp(nanos=-1)),
        Value(decimal_value="1E+1000000"),
        Value(decimal_value="ten"),
        Value(decimal_value="1" * 300_000),
        struct_pb2.Value(number_value=math.nan),
        struct_pb2.Value(number_value=math.inf),
    ):
        try:
            extent([value])
        except OutOfBounds as error:
            assert "holds an invalid" in str(error), value  # noqa: PT017  each row has to raise
        else:
            passed.append(value)
    assert not passed


def test_values_made_from_python_pass() -> None:
    made = (date(2024, 2, 29), datetime(1, 1, 1, tzinfo=UTC), Decimal("-1.50"), Decimal("NaN"))
    for python in (*made, math.nan):
        value = to_value(python)
        assert extent([value]) == Extent(1, 0), python
        assert str(from_value(value)) == str(python)


def test_duration_is_valid_exactly_if_json_can_hold_it() -> None:
    most = 315_576_000_000

    def fits_json(duration: Duration) -> bool:
        try:
            duration.ToJsonString()
        except ValueError:
            return False
        return True

    seen = set()
    for seconds, nanos in (
        *((0, 0), (most, 999_999_999), (-most, -999_999_999), (most + 1, 0), (-most - 1, 0)),
        *((2**62, 0), (-(2**63), 0), (0, 10**9), (0, -(10**9)), (1, -1), (-1, 1)),
    ):
        duration = Duration(seconds=seconds, nanos=nanos)
        assert is_duration(duration) == fits_json(duration), (seconds, nanos)
        seen.add(is_duration(duration))
    assert seen == {True, False}
