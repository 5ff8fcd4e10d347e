"""Tokens of pages that go from the newest to the oldest: where the page before has ended."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from uuid import UUID

from bos_chassis.errors import InvalidArgument


def encode_token(created_at: datetime, last_id: UUID) -> str:
    """The token of the page behind this row."""
    text = f"{created_at.isoformat()}|{last_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_token(token: str) -> tuple[datetime, UUID]:
    """The row behind which a page begins; one before all others for an empty token.

    Raises:
        InvalidArgument: the token is not one of ours.
    """
    if not token:
        return datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1)
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        created, _, last_id = text.partition("|")
        # Whatever was put into the text, the comparison needs a time zone.
        return datetime.fromisoformat(created).astimezone(UTC), UUID(last_id)
    except (binascii.Error, ValueError, OverflowError):
        raise InvalidArgument.field(
            "page_token", "is not a token of this service; start without one"
        ) from None
