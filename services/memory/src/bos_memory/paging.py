"""Tokens of pages: where the page before has ended."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import UTC, datetime
from uuid import UUID

from bos_chassis.errors import InvalidArgument

_MAX_ORDINAL = 2**31 - 1


def time_token(at: datetime, key: UUID) -> str:
    """The token of the page behind this time and key."""
    return _encoded([at.isoformat(), str(key)])


def after_time(token: str) -> tuple[datetime, UUID]:
    """What :func:`time_token` was made of; later than everything for an empty token.

    Raises:
        InvalidArgument: the token is not one of ours.
    """
    if not token:
        return datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1)
    try:
        at, key = _decoded(token)
        return datetime.fromisoformat(str(at)).astimezone(UTC), UUID(str(key))
    except (binascii.Error, ValueError, TypeError, OverflowError):
        raise _foreign() from None


def ordinal_token(ordinal: int) -> str:
    """The token of the page behind this place."""
    return _encoded([ordinal])


def after_ordinal(token: str) -> int:
    """What :func:`ordinal_token` was made of; before everything for an empty token.

    Raises:
        InvalidArgument: the token is not one of ours.
    """
    if not token:
        return -1
    try:
        (ordinal,) = _decoded(token)
    except (binascii.Error, ValueError, TypeError):
        raise _foreign() from None
    if not isinstance(ordinal, int) or not -1 <= ordinal <= _MAX_ORDINAL:
        raise _foreign()
    return ordinal


def _encoded(parts: list[object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


def _decoded(token: str) -> list[object]:
    found = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    if not isinstance(found, list):
        raise TypeError
    return found


def _foreign() -> InvalidArgument:
    return InvalidArgument.field("page_token", "is not a token of this service; start without one")
