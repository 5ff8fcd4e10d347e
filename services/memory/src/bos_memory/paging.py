"""Page tokens by position in a conversation; those by time are in the chassis."""

from __future__ import annotations

from bos_chassis.paging import decoded, encoded, foreign_token

_MAX_ORDINAL = 2**31 - 1


def ordinal_token(ordinal: int) -> str:
    """The token of the page after this position."""
    return encoded(str(ordinal))


def after_ordinal(token: str) -> int:
    """Decode a token of :func:`ordinal_token`; an empty token is the position before the first.

    Raises:
        InvalidArgument: the token is invalid.
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
