"""Signatures of webhook events, by the Standard Webhooks specification (HMAC-SHA256, version 1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

_PREFIX: Final = "whsec_"
_SECRET_BYTES: Final = 32


def new_secret() -> str:
    """A new signing secret: ``whsec_`` and 32 random bytes in base64."""
    return _PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signed_headers(secret: str, delivery_id: str, sent_at: int, body: bytes) -> dict[str, str]:
    """The headers that identify an event and prove where it comes from.

    Args:
        secret: As :func:`new_secret` made it.
        delivery_id: The same in every attempt.
        sent_at: Seconds since 1970 of this attempt; receivers refuse what is old.
        body: As it is sent, byte for byte.
    """
    key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    content = b".".join((delivery_id.encode(), str(sent_at).encode(), body))
    signature = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": f"v1,{signature}",
    }
