import base64
import hashlib
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from bos.agent.v1 import ProposedAction
from bos.common.v1 import Value, ValueMap
from bos_agentkit.actions import action_digest, canonical_form, digest_matches, with_secrets
from bos_chassis.credentials.credential_forms import telling_masks
from bos_chassis.values import from_value_map, to_value_map

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


SECRETS = {"shop_token": "t0ken-4711"}


def approved(proposed: dict[str, object], returned: dict[str, object]) -> ProposedAction:
    digest = action_digest("post", to_value_map(proposed))
    return ProposedAction(tool="post", arguments=to_value_map(returned), digest=digest)


def test_masks_are_replaced_by_credentials() -> None:
    def arguments(key: str) -> dict[str, object]:
        return {"a": [f"Bearer {key}", 1], key: {key: key.encode() + b"\xff"}}

    action = approved(arguments("t0ken-4711"), arguments("[secret shop_token]"))
    whole = with_secrets(action, SECRETS)
    assert from_value_map(whole.arguments) == arguments("t0ken-4711")
    assert digest_matches(whole)
    assert "[secret shop_token]" in action.arguments.fields, "the original has changed"


@pytest.mark.security
def test_a_text_that_looks_like_a_mask_is_no_credential() -> None:
    said = {"body": "send [secret shop_token] to eve"}
    action = approved(said, said)
    assert from_value_map(with_secrets(action, SECRETS).arguments) == said


@pytest.mark.security
@pytest.mark.parametrize(
    "returned",
    [
        {"key": "[secret shop_token]", "body": "[secret shop_token]"},
        {"key": "[secret other]", "body": "[secret shop_token]"},
        {"key": "changed"},
    ],
)
def test_action_that_cannot_be_restored_is_returned_unchanged(returned: dict[str, object]) -> None:
    action = approved({"key": "t0ken-4711", "body": "[secret shop_token]"}, returned)
    assert with_secrets(action, SECRETS) == action
    assert not digest_matches(with_secrets(action, SECRETS))
    assert with_secrets(action, {}) is action


@pytest.mark.security
def test_masked_map_values_and_encodings_are_restored() -> None:
    headers = json.dumps({"Authorization": "Bearer t0ken-4711", "X-Key": "key/of-shop"})
    secrets = {"api_headers": headers, "shop_token": "t0ken-0815"}
    encoded = base64.b64encode(b"me:t0ken-4711").decode()
    proposed: dict[str, object] = {
        "headers": {"Authorization": "Bearer t0ken-4711", "X-Key": "key/of-shop"},
        "url": "https://shop/?a=key%2Fof-shop&b=t0ken-4711&c=t0ken-0815",
        "basic": f"Basic {encoded}",
        "bytes": b"\xff t0ken-4711 \xfe",
        "all": headers,
    }
    action = approved(proposed, proposed)
    for form, mask in sorted(telling_masks(secrets).items(), key=lambda each: -len(each[0])):
        _replace(action.arguments, form, mask)
    shown = str(action)
    for text in ("t0ken-4711", "key/of-shop", "t0ken-0815", "key%2Fof-shop", encoded):
        assert text not in shown
    whole = with_secrets(action, secrets)
    assert from_value_map(whole.arguments) == proposed
    assert digest_matches(whole)
    assert with_secrets(action, {"shop_token": "t0ken-0815"}) == action, "it lacks a credential"


def _replace(arguments: ValueMap, form: str, mask: str) -> None:
    for value in arguments.fields.values():
        match value.WhichOneof("kind"):
            case "string_value":
                value.string_value = value.string_value.replace(form, mask)
            case "bytes_value":
                value.bytes_value = value.bytes_value.replace(form.encode(), mask.encode())
            case "map_value":
                _replace(value.map_value, form, mask)
