"""Bounds of values from outside: depth, number, and scalars that are what they say."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from google.protobuf import struct_pb2
from google.protobuf.timestamp_pb2 import Timestamp
from google.type.date_pb2 import Date

from bos.common.v1 import Value, ValueList, ValueMap
from bos_chassis.values import MAX_DEPTH, from_value, to_value
from bos_plans import MAX_VALUES, Extent, OutOfBounds, extent


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


@pytest.mark.parametrize("kind", ["map", "list"])
def test_depth_is_bounded(kind: str) -> None:
    assert extent([nested(MAX_DEPTH, kind)]) == Extent(MAX_DEPTH + 1, MAX_DEPTH)
    with pytest.raises(OutOfBounds, match="more than 24 deep"):
        extent([nested(MAX_DEPTH + 1, kind)])


def test_depth_of_json_is_bounded_alike() -> None:
    assert extent([struct(MAX_DEPTH)]).depth == MAX_DEPTH
    with pytest.raises(OutOfBounds):
        extent([struct(MAX_DEPTH + 1)])


@pytest.mark.parametrize("shape", ["list", "map", "beside one another"])
def test_number_is_bounded(shape: str) -> None:
    def values(count: int) -> list[Value]:
        if shape == "list":
            return [Value(list_value=ValueList(values=[Value()] * (count - 1)))]
        if shape == "map":
            fields = {str(n): Value() for n in range(count - 1)}
            return [Value(map_value=ValueMap(fields=fields))]
        return [Value()] * count

    assert extent(values(1000), max_values=1000).values == 1000
    with pytest.raises(OutOfBounds, match="more than 1000 values"):
        extent(values(1001), max_values=1000)


def test_a_million_keys_are_not_counted_to_the_end() -> None:
    read = 0

    def endless() -> object:
        nonlocal read
        while True:
            read += 1
            yield Value()

    with pytest.raises(OutOfBounds):
        extent(endless())  # type: ignore[arg-type]
    assert read == MAX_VALUES + 1


@pytest.mark.parametrize(
    "value",
    [
        Value(date_value=Date(year=2024, month=2, day=30)),
        Value(date_value=Date(year=0, month=1, day=1)),
        Value(timestamp_value=Timestamp(seconds=2**62)),
        Value(timestamp_value=Timestamp(nanos=-1)),
        Value(decimal_value="1E+1000000"),
        Value(decimal_value="ten"),
        Value(decimal_value="1" * 300_000),
        struct_pb2.Value(number_value=math.nan),
        struct_pb2.Value(number_value=math.inf),
    ],
    ids=str,
)
def test_scalar_that_is_none_of_its_kind_is_refused(value: Value) -> None:
    with pytest.raises(OutOfBounds, match="that is none"):
        extent([value])


@pytest.mark.parametrize(
    "python",
    [date(2024, 2, 29), datetime(1, 1, 1, tzinfo=UTC), Decimal("-1.50"), Decimal("NaN"), math.nan],
    ids=str,
)
def test_whatever_can_be_made_of_python_passes(python: object) -> None:
    value = to_value(python)
    assert extent([value]) == Extent(1, 0)
    assert str(from_value(value)) == str(python)
