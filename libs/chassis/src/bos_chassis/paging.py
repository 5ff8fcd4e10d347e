"""Pages of listings: tokens of where the page before has ended (AIP-158), and words to be found.

Tokens are opaque to callers and checked here.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from bos_errors import InvalidArgument

MOST_WORDS: Final = 8
_MAX_ORDINAL: Final = 2**31 - 1


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


def ordinal_token(ordinal: int) -> str:
    """The token of the page behind this position."""
    return encoded(str(ordinal))


def after_ordinal(token: str) -> int:
    """The position that :func:`ordinal_token` encoded; before the first for an empty token.

    Raises:
        InvalidArgument: the token is not one of ours.
    """
    if not token:
        return -1
    try:
        ordinal = int(decoded(token))
    except ValueError:
        raise foreign_token() from None
    if not -1 <= ordinal <= _MAX_ORDINAL:
        raise foreign_token()
    return ordinal


def word_patterns(query: str) -> list[str]:
    """Patterns of ILIKE, one for each word of a query; none for a query without words.

    Raises:
        InvalidArgument: there are too many words.
    """
    words = query.replace("\0", " ").split()
    if len(words) > MOST_WORDS:
        raise InvalidArgument.field("query", f"must have at most {MOST_WORDS} words")
    escaped = [re.sub(r"([\\%_])", r"\\\1", word) for word in words]
    return [f"%{word}%" for word in escaped]


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
