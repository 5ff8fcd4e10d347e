"""Restoring masked credentials in approved actions."""

import base64
import json

import pytest

from bos.agent.v1 import ProposedAction
from bos.common.v1 import ValueMap
from bos_agentkit.actions import action_digest, digest_matches, with_secrets
from bos_chassis.credentials.credential_forms import telling_masks
from bos_chassis.values import from_value_map, to_value_map

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
def test_an_action_that_cannot_be_restored_is_returned_unchanged(
    returned: dict[str, object],
) -> None:
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
