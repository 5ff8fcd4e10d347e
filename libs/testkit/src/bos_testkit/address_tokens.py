"""Address tokens as the REST gateway makes them, with a key of the test's own."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class AddressTokens:
    """Signs what a gateway says of its callers."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()

    @property
    def public_key(self) -> str:
        """What services know it by (PEM)."""
        pem = self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return pem.decode()

    def token(self, address: str, **claims: Any) -> str:
        """A token for a client's address; ``claims`` replace what it says, None leaves one out."""
        now = int(time.time())
        made = {"iss": "bos-rest", "aud": ["bos"], "adr": address, "iat": now, "exp": now + 60}
        made = {name: value for name, value in (made | claims).items() if value is not None}
        raw = self._key.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        headers = {"kid": hashlib.sha256(raw).hexdigest()[:16]}
        return jwt.encode(made, self._key, algorithm="EdDSA", headers=headers)
