"""Refresh tokens and codes: random texts of which the store keeps a hash."""

from __future__ import annotations

import hashlib
import secrets

_REFRESH_PREFIX = "bosr_"  # so that scanners for leaked secrets recognise them
_SECRET_BYTES = 32


def new_refresh_token() -> str:
    """A token that cannot be guessed."""
    return _REFRESH_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def new_code(prefix: str) -> str:
    """A code that cannot be guessed, to be passed on by people."""
    return prefix + secrets.token_urlsafe(_SECRET_BYTES)


def digest(secret: str) -> bytes:
    """What the store keeps of tokens and codes. They are random, so a plain hash hides them."""
    return hashlib.sha256(secret.encode()).digest()
