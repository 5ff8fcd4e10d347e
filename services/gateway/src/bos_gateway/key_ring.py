"""Keys that encrypt stored secrets: AES-256-GCM, bound to the row that they are in."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Self
from uuid import UUID

from attrs import define
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bos_errors import ConfigurationError

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class SecretsUnreadable(Exception):
    """The row is of a key that is not configured, or is not what was written there."""


class SealedSecrets(NamedTuple):
    """Encrypted secrets of a run or webhook, as they are stored."""

    key_id: str
    ciphertext: bytes
    """Nonce (12 bytes) and AES-256-GCM."""


@define(eq=False)
class SecretsKeyRing:
    """Keys by id. The first encrypts, all decrypt: a new key is put in front of the old ones."""

    _keys: dict[str, AESGCM]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``id=base64,id=base64``.

        Raises:
            ConfigurationError: says which entry is wrong, without showing any of it.
        """
        keys: dict[str, AESGCM] = {}
        for number, entry in enumerate(filter(None, map(str.strip, text.split(","))), 1):
            key_id, separator, encoded = map(str.strip, entry.partition("="))
            if not separator or not _KEY_ID.fullmatch(key_id):
                raise _unusable(number, "is not of the form id=key; an id is of A-Z a-z 0-9 _ . -")
            if key_id in keys:
                raise _unusable(number, "has the id of an earlier one")
            try:
                key = base64.b64decode(encoded, validate=True)
            except ValueError:
                raise _unusable(number, "is not base64") from None
            if len(key) != _KEY_BYTES:
                raise _unusable(number, f"holds {len(key)} bytes, not {_KEY_BYTES}")
            keys[key_id] = AESGCM(key)
        if not keys:
            raise ConfigurationError("There is no key in it.")
        return cls(keys)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all keys."""
        return frozenset(self._keys)

    def seal(self, owner: UUID, secrets: Mapping[str, str]) -> SealedSecrets:
        """Encrypt secrets of one run or webhook."""
        key_id, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        plain = json.dumps(dict(secrets)).encode()
        return SealedSecrets(key_id, nonce + key.encrypt(nonce, plain, owner.bytes))

    def open(self, owner: UUID, sealed: SealedSecrets) -> dict[str, str]:
        """The secrets of this run or webhook.

        Raises:
            SecretsUnreadable: nothing of the content can be trusted, or the key is not here.
        """
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise SecretsUnreadable("its key is not configured")
        nonce, text = sealed.ciphertext[:_NONCE_BYTES], sealed.ciphertext[_NONCE_BYTES:]
        try:
            plain: dict[str, str] = json.loads(key.decrypt(nonce, text, owner.bytes))
        except (InvalidTag, ValueError):
            raise SecretsUnreadable("it was not written there, or was changed") from None
        return plain


def _unusable(number: int, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Key {number} {why}. Make one by `openssl rand -base64 {_KEY_BYTES}` "
        "and write id=key, the newest first, separated by commas."
    )
