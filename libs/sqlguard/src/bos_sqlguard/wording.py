"""Tells whether two texts of a query consist of the same words, so that one reading serves both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import TokenType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import Token

# Around these a space more or less means nothing to the parser.
_LOOSE = frozenset(
    {
        TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN, TokenType.STAR, TokenType.EQ,
        TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.PLUS,
    }
)  # fmt: skip
# After these the parser takes LIMIT for nothing but the limit. (After text it could be a unit.)
_BEFORE_LIMIT = frozenset(
    {
        TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.R_PAREN, TokenType.STAR,
        TokenType.DESC, TokenType.ASC,
    }
)  # fmt: skip
_SPELLED_EXACTLY = frozenset(
    {
        TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING,
        TokenType.NATIONAL_STRING, TokenType.RAW_STRING, TokenType.HEREDOC_STRING,
    }
)  # fmt: skip


def same_wording(given: Sequence[Token], written: Sequence[Token]) -> bool:
    """Return whether ``written`` is ``given`` word for word, or that and a row limit at the end.

    The parser sees words only, and from a few places whether two of them touch. So equal words give
    the tree that was checked already; any difference, and reading again has to tell.
    """
    more = len(written) - len(given)
    if more == 2:
        limit, number = written[-2:]
        if given[-1].token_type not in _BEFORE_LIMIT:
            return False
        if limit.token_type != TokenType.LIMIT or number.token_type != TokenType.NUMBER:
            return False
    elif more != 0:
        return False
    ours: Token | None = None
    theirs: Token | None = None
    for mine, other in zip(given, written, strict=False):
        kind = mine.token_type
        if kind != other.token_type:
            return False
        if mine.text != other.text and (
            kind in _SPELLED_EXACTLY or mine.text.upper() != other.text.upper()
        ):
            return False
        if ours is not None and theirs is not None:
            touching = ours.end + 1 == mine.start
            if touching != (theirs.end + 1 == other.start) and not (
                kind in _LOOSE or ours.token_type in _LOOSE
            ):
                return False
        ours, theirs = mine, other
    return True
