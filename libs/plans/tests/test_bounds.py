"""Limits of typed values in requests: depth, number, valid scalars."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

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


@pytest.mark.parametrize("kind", ["map", "list"])
def test_depth_is_bounded(kind: str) -> None:
    assert extent([nested(MAX_DEPTH, kind)]) == Extent(MAX_DEPTH + 1, MAX_DEPTH)
    with pytest.raises(OutOfBounds, match="more than 24 deep"):
        extent([nested(MAX_DEPTH + 1, kind)])


def test_depth_of_json_is_bounded() -> None:
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
def test_invalid_scalar_is_refused(value: Value) -> None:
    with pytest.raises(OutOfBounds, match="that is none"):
        extent([value])


@pytest.mark.parametrize(
    "python",
    [date(2024, 2, 29), datetime(1, 1, 1, tzinfo=UTC), Decimal("-1.50"), Decimal("NaN"), math.nan],
    ids=str,
)
def test_all_values_made_from_python_pass(python: object) -> None:
    value = to_value(python)
    assert extent([value]) == Extent(1, 0)
    assert str(from_value(value)) == str(python)


@pytest.mark.parametrize(
    "duration",
    [
        Duration(),
        Duration(seconds=315_576_000_000, nanos=999_999_999),
        Duration(seconds=-315_576_000_000, nanos=-999_999_999),
        Duration(seconds=315_576_000_001),
        Duration(seconds=-315_576_000_001),
        Duration(seconds=2**62),
        Duration(seconds=-(2**63)),
        Duration(nanos=10**9),
        Duration(nanos=-(10**9)),
        Duration(seconds=1, nanos=-1),
        Duration(seconds=-1, nanos=1),
    ],
    ids=lambda d: f"{d.seconds}s{d.nanos}ns",
)
def test_duration_is_valid_exactly_if_json_can_hold_it(duration: Duration) -> None:
    try:
        duration.ToJsonString()
    except ValueError:
        assert not is_duration(duration)
    else:
        assert is_duration(duration)
