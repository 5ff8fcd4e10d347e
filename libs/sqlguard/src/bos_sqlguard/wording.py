"""Compares two texts of a query word by word, so that one reading serves both."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import Token, TokenType

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
    the tree that was checked already; any difference, and the text is read again.
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


# Nothing that a dialect reads as one sign contains a bracket or a comma.
_NEVER_MERGE = frozenset({TokenType.COMMA, TokenType.L_PAREN, TokenType.R_PAREN})
_GAP = re.compile(r"[ \t\r\n]*")
_LIMIT = re.compile(r" LIMIT [0-9]+", re.ASCII)


def same_text(tokens: Sequence[Token], given: str, written: str) -> bool:
    """Return whether splitting ``written`` would only show what :func:`same_wording` asks for.

    Much quicker, because ``written`` is not split: the words of ``given``, cut from it, must follow
    one another in ``written`` with nothing but spaces between them, on either side, and without a
    space less where two of them could become one. False means: split it and see.
    """
    gap = _GAP.match
    place = end = 0
    before: TokenType | None = None
    for token in tokens:
        kind, start = token.token_type, token.start
        found = gap(given, end)
        if found is None or found.end() != start:  # a comment, or another kind of space
            return False
        end_of_gap = gap(written, place).end()  # type: ignore[union-attr]  # it may be empty
        if (end_of_gap == place) != (start == end) and before is not None:
            if end_of_gap == place:
                if kind not in _NEVER_MERGE and before not in _NEVER_MERGE:
                    return False
            elif kind not in _LOOSE and before not in _LOOSE:
                return False
        end = token.end + 1
        word = given[start:end]
        place = end_of_gap + len(word)
        if written[end_of_gap:place] != word and (
            kind in _SPELLED_EXACTLY
            or not word.isascii()
            or written[end_of_gap:place].upper() != word.upper()
        ):
            return False
        before = kind
    if place == len(written):
        return True
    return before in _BEFORE_LIMIT and _LIMIT.fullmatch(written, place) is not None
