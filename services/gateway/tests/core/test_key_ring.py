"""Keys that encrypt the credentials of runs: what opens what, and which keys are refused."""

import base64
import os
from uuid import uuid4

import pytest

from bos_errors import ConfigurationError
from bos_gateway.key_ring import SealedSecrets, SecretsKeyRing, SecretsUnreadable
from bos_gateway.settings import GatewaySettings

from .test_settings import NEEDED

SECRET = "shop-token-4711"
FIXED = f"k1={base64.b64encode(bytes(range(32))).decode()}"


def new_key(key_id: str = "k1") -> str:
    return f"{key_id}={base64.b64encode(os.urandom(32)).decode()}"


def test_equal_credentials_differ_and_open_only_in_their_run() -> None:
    ring, run_id = SecretsKeyRing.parse(new_key()), uuid4()
    one, two = ring.seal(run_id, {"a": SECRET}), ring.seal(run_id, {"a": SECRET})
    assert one.ciphertext != two.ciphertext
    assert ring.open(run_id, one) == ring.open(run_id, two) == {"a": SECRET}
    with pytest.raises(SecretsUnreadable):
        ring.open(uuid4(), one)
    with pytest.raises(SecretsUnreadable):
        ring.open(run_id, SealedSecrets("k1", one.ciphertext[:-1]))


def test_an_old_key_still_opens_and_a_new_one_seals() -> None:
    old, new, run_id = new_key("old"), new_key("new"), uuid4()
    sealed = SecretsKeyRing.parse(old).seal(run_id, {"a": "b"})
    both = SecretsKeyRing.parse(f"{new}, {old}")
    assert both.open(run_id, sealed) == {"a": "b"}
    assert both.seal(run_id, {}).key_id == "new"
    with pytest.raises(SecretsUnreadable):
        SecretsKeyRing.parse(new).open(run_id, sealed)


def test_unusable_key_is_refused_and_not_shown() -> None:
    for keys, problem in {
        "0123456789abcdef": "of the form id=key",
        "a b=AAAA": "of the form id=key",
        "a=not base64!": "not base64",
        "a=c2hvcnQ=": "holds 5 bytes, not 32",
        f"{FIXED},{FIXED}": "Key 2 has the id of an earlier one",
        " , ": "no key",
    }.items():
        with pytest.raises(ConfigurationError, match=problem) as raised:
            GatewaySettings.load(**NEEDED, secrets_keys=keys)
        assert "BOS_GATEWAY_SECRETS_KEYS" in raised.value.message
        shown = [part for part in keys.replace("=", ",").split(",") if len(part.strip()) > 3]
        assert not any(part in raised.value.message for part in shown), problem
