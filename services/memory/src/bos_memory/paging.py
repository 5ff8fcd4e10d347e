"""Tokens of pages that go by a place in a conversation; those by time are the chassis's."""

from __future__ import annotations

from bos_chassis.paging import decoded, encoded, foreign_token

_MAX_ORDINAL = 2**31 - 1


def ordinal_token(ordinal: int) -> str:
    """The token of the page behind this place."""
    return encoded(str(ordinal))


def after_ordinal(token: str) -> int:
    """The position that :func:`ordinal_token` encoded; before everything for an empty token.

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
