"""Tokens of pages: where the page before has ended (AIP-158). Opaque to callers, checked here."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from uuid import UUID

from bos_errors import InvalidArgument


def time_token(at: datetime, key: UUID) -> str:
    """The token of the page behind the row with this time and key."""
    return encoded(f"{at.isoformat()}|{key}")


def after_time(token: str) -> tuple[datetime, UUID]:
    """The position that :func:`time_token` encoded; later than everything for an empty token.

    Raises:
        InvalidArgument: the token is not one of ours.
    """
    if not token:
        return datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1)
    try:
        at, _, key = decoded(token).partition("|")
        # However the text was made, the comparison needs a time zone.
        return datetime.fromisoformat(at).astimezone(UTC), UUID(key)
    except (ValueError, OverflowError):
        raise foreign_token() from None


def encoded(text: str) -> str:
    """A token that holds ``text``."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decoded(token: str) -> str:
    """The text that :func:`encoded` was given.

    Raises:
        InvalidArgument: the token is not one of ours.
    """
    try:
        return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    except (binascii.Error, ValueError):
        raise foreign_token() from None


def foreign_token() -> InvalidArgument:
    """Why a page cannot be found."""
    return InvalidArgument.field("page_token", "is not a token of this service; start without one")
