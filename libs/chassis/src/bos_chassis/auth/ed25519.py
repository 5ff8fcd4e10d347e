"""Ed25519 keys in PEM form, as run tokens are signed and verified with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bos_errors import ConfigurationError


def split_pem(text: str) -> Iterator[str]:
    """The public keys in a text that holds several, each as PEM."""
    end = "-----END PUBLIC KEY-----"
    for part in text.split(end):
        if part.strip():
            yield part.strip() + f"\n{end}\n"


def load_public(pem: str) -> Ed25519PublicKey:
    """The public key for run tokens in ``pem``.

    Raises:
        ConfigurationError: It is none.
    """
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigurationError(
            "A public key for run tokens is not an Ed25519 key in PEM form "
            "(BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS)."
        )
    return key


def public_pem(key: Ed25519PublicKey) -> str:
    """``key`` as PEM."""
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return pem.decode()


def key_id(key: Ed25519PublicKey) -> str:
    """The id by which tokens name ``key``."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:16]
