"""Credentials of runs, encrypted at rest, so that whoever adopts a run can hand them on.

A row is written by the statement that accepts its run and deleted by the one that ends it. The
ciphertext is bound to its run: in another run's row it does not open.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bos_chassis.errors import ConfigurationError
from bos_postgres import fetchrow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self
    from uuid import UUID

    import asyncpg

    from bos_chassis.telemetry import Telemetry

_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ROW = "SELECT key_id, ciphertext FROM run_secrets WHERE run_id = $1"


class SecretsUnreadable(Exception):
    """The row is of a key that is not configured, or is not what was written for this run."""


@dataclass(frozen=True, slots=True)
class SealedSecrets:
    """What is stored of a run's credentials."""

    key_id: str
    ciphertext: bytes
    """Nonce (12 bytes) and AES-256-GCM."""


class SecretsKeyRing:
    """Keys by id. The first encrypts, all decrypt: a new key is put in front of the old ones.

    Args:
        keys: Pairs of id and key (32 bytes), at least one.
    """

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        self._first = keys[0][0]
        self._keys = {key_id: AESGCM(key) for key_id, key in keys}

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``id=base64,id=base64``.

        Raises:
            ConfigurationError: says which entry is wrong, without showing any of it.
        """
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(filter(None, map(str.strip, text.split(","))), 1):
            key_id, separator, encoded = entry.partition("=")
            if not separator or not _KEY_ID.fullmatch(key_id.strip()):
                raise _unusable(number, "is not of the form id=key; an id is of A-Z a-z 0-9 _ . -")
            if key_id.strip() in keys:
                raise _unusable(number, "has the id of an earlier one")
            try:
                key = base64.b64decode(encoded.strip(), validate=True)
            except (binascii.Error, ValueError):
                raise _unusable(number, "is not base64") from None
            if len(key) != _KEY_BYTES:
                raise _unusable(number, f"holds {len(key)} bytes, not {_KEY_BYTES}")
            keys[key_id.strip()] = key
        if not keys:
            raise ConfigurationError("There is no key in it.")
        return cls(list(keys.items()))

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all keys."""
        return frozenset(self._keys)

    def seal(self, run_id: UUID, secrets: Mapping[str, str]) -> SealedSecrets:
        """Encrypt credentials for one run."""
        nonce = os.urandom(_NONCE_BYTES)
        plain = json.dumps(dict(secrets)).encode()
        sealed = self._keys[self._first].encrypt(nonce, plain, run_id.bytes)
        return SealedSecrets(self._first, nonce + sealed)

    def open(self, run_id: UUID, sealed: SealedSecrets) -> dict[str, str]:
        """The credentials of this run.

        Raises:
            SecretsUnreadable: nothing of the content can be trusted, or the key is not here.
        """
        key = self._keys.get(sealed.key_id)
        if key is None:
            raise SecretsUnreadable("its key is not configured")
        nonce, text = sealed.ciphertext[:_NONCE_BYTES], sealed.ciphertext[_NONCE_BYTES:]
        try:
            plain: dict[str, str] = json.loads(key.decrypt(nonce, text, run_id.bytes))
        except (InvalidTag, ValueError):
            raise SecretsUnreadable("it was not written for this run, or was changed") from None
        return plain


class RunSecrets:
    """Seals the credentials of new runs and finds those of adopted ones.

    Args:
        ring: The keys; None keeps credentials in memory only.
        pool: Connections whose search path is the gateway's schema.
        telemetry: For the log, which never shows a credential.
    """

    def __init__(
        self,
        ring: SecretsKeyRing | None,
        pool: asyncpg.Pool[asyncpg.Record],
        telemetry: Telemetry,
    ) -> None:
        self._ring = ring
        self._pool = pool
        self._log = telemetry.logger("bos.gateway.run_secrets")
        if ring is None:
            self._log.warning(
                "no BOS_GATEWAY_SECRETS_KEYS: a run whose gateway dies loses its credentials"
            )

    def seal(self, run_id: UUID, secrets: Mapping[str, str]) -> SealedSecrets | None:
        """What to store for a new run; None if there is nothing, or no key."""
        if self._ring is None or not secrets:
            return None
        return self._ring.seal(run_id, secrets)

    async def load(self, run_id: UUID) -> dict[str, str]:
        """The stored credentials of a run; empty if there are none that can be read.

        Raises:
            BosError: the database is away.
        """
        row = await fetchrow(self._pool, _ROW, run_id)
        if row is None:
            return {}
        try:
            if self._ring is None:
                raise SecretsUnreadable("no key is configured")
            return self._ring.open(run_id, SealedSecrets(row["key_id"], row["ciphertext"]))
        except SecretsUnreadable as error:
            self._log.error(
                "credentials cannot be read", run=str(run_id), key_id=row["key_id"], why=str(error)
            )
            return {}


def _unusable(number: int, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"Key {number} {why}. Make one by `openssl rand -base64 {_KEY_BYTES}` "
        "and write id=key, the newest first, separated by commas."
    )
