import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bos_mcp_db.values import decode, encode, size

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
)
_CELLS = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(_CELLS)
def test_every_value_survives_json(value: object) -> None:
    wire = json.loads(json.dumps(encode(value)))

    assert decode(wire) == value
    assert _kinds(decode(wire)) == _kinds(value)


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        (9007199254740991, 9007199254740991),
        (9007199254740992, {"$int": "9007199254740992"}),
        (-9007199254740992, {"$int": "-9007199254740992"}),
        (Decimal("1.10"), {"$decimal": "1.10"}),
        (Decimal("1E+3"), {"$decimal": "1000"}),
        (Decimal("NaN"), {"$double": "NaN"}),
        (float("-inf"), {"$double": "-Infinity"}),
        (Decimal("-Infinity"), {"$double": "-Infinity"}),
        (b"\x00\xff", {"$bytes": "AP8="}),
        (date(2025, 1, 31), {"$date": "2025-01-31"}),
        (datetime(2025, 1, 31, 10, tzinfo=UTC), {"$timestamp": "2025-01-31T10:00:00Z"}),
        (
            datetime(2025, 1, 31, 10, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            {"$timestamp": "2025-01-31T04:30:00Z"},
        ),
        (datetime(2025, 1, 31, 10), {"$timestamp": "2025-01-31T10:00:00"}),  # noqa: DTZ001
        ([1, None], [1, None]),
        ({"$int": "x"}, {"$map": {"$int": "x"}}),
        (time(10, 30), "10:30:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    ],
)
def test_wire_format(value: object, wire: object) -> None:
    assert encode(value) == wire


def test_nan_survives() -> None:
    assert math.isnan(decode(encode(float("nan"))))


@pytest.mark.parametrize("wire", [{}, {"a": 1}, {"$odd": "1"}, {"$int": 1}, {"$int": "1", "x": 2}])
def test_an_unknown_object_is_refused(wire: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a tagged value"):
        decode(wire)


@pytest.mark.parametrize("value", ["x" * 1000, b"x" * 1000, ["x" * 500] * 2, {"a": "x" * 1000}])
def test_size_is_about_the_bytes_on_the_wire(value: object) -> None:
    assert 1000 <= size(value) <= 1100


def _kinds(value: object) -> object:
    if isinstance(value, list):
        return [_kinds(item) for item in value]
    if isinstance(value, dict):
        return {key: _kinds(item) for key, item in value.items()}
    return type(value)
