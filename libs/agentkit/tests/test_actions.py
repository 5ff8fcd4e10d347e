import hashlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from bos.agent.v1 import ProposedAction
from bos.common.v1 import Value, ValueMap
from bos_agentkit import action_digest, digest_matches
from bos_agentkit.actions import canonical_form
from bos_chassis.values import to_value_map

EVERY_TYPE: dict[str, Any] = {
    "z": None,
    "bool": True,
    "text": 'ü "quoted"',
    "int": 5,
    "double": 1.5,
    "decimal": Decimal("1.50"),
    "bytes": b"\x00\xff",
    "date": date(2026, 1, 31),
    "time": datetime(2026, 1, 31, 12, 0, 0, 5000, tzinfo=UTC),
    "list": [1, "1"],
    "map": {"b": 1, "a": None},
}
CANONICAL = (
    '{"arguments":{"bool":true,"bytes":{"bytes":"00ff"},"date":{"date":"2026-01-31"},'
    '"decimal":{"decimal":"1.50"},"double":{"double":"0x1.8000000000000p+0"},"int":{"int":"5"},'
    '"list":[{"int":"1"},"1"],"map":{"map":{"a":null,"b":{"int":"1"}}},'
    '"text":"ü \\"quoted\\"","time":{"timestamp":"1769860800.005000000"},"z":null},'
    '"tool":"send_email"}'
)


def test_the_canonical_form_is_the_documented_one() -> None:
    """Approvals given before an upgrade must hold after it, so this text must never change."""
    assert canonical_form("send_email", to_value_map(EVERY_TYPE)) == CANONICAL


def test_the_digest_is_the_sha256_of_the_canonical_form() -> None:
    expected = "sha256:" + hashlib.sha256(CANONICAL.encode()).hexdigest()
    assert action_digest("send_email", to_value_map(EVERY_TYPE)) == expected


def test_map_order_and_unset_values_make_no_difference() -> None:
    shuffled = to_value_map(dict(reversed(EVERY_TYPE.items())))
    shuffled.fields["z"].CopyFrom(Value())
    assert action_digest("t", shuffled) == action_digest("t", to_value_map(EVERY_TYPE))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (5, "5"),
        (5, Decimal(5)),
        (Decimal("1.5"), Decimal("1.50")),
        ("2026-01-31", date(2026, 1, 31)),
        (None, False),
        ([], {}),
    ],
)
def test_arguments_that_differ_for_a_tool_have_different_digests(one: Any, other: Any) -> None:
    digests = {action_digest("t", to_value_map({"a": value})) for value in (one, other)}
    assert len(digests) == 2


def test_an_action_matches_only_its_own_digest() -> None:
    arguments = to_value_map({"to": "a@example.com"})
    action = ProposedAction(
        tool="send", arguments=arguments, digest=action_digest("send", arguments)
    )
    assert digest_matches(action)
    assert not digest_matches(
        ProposedAction(tool="send", arguments=ValueMap(), digest=action.digest)
    )
    assert not digest_matches(
        ProposedAction(tool="drop", arguments=arguments, digest=action.digest)
    )
    assert not digest_matches(ProposedAction(tool="send", arguments=arguments))
