"""Names of groups and roles, as tokens and settings carry them: bounded and printable."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import AfterValidator

MAX_NAMES = 64
"""Most groups, or roles, that a token may name."""
MAX_NAME_CHARS = 64


def is_name(text: object) -> bool:
    """Whether this can be the name of a group or role: 1 to 64 printable characters."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= MAX_NAME_CHARS
        and text.isprintable()
        and text == text.strip()
    )


def required_names(claim: object, what: str) -> frozenset[str]:
    """Names of groups or roles as a token's claim holds them.

    Raises:
        ValueError: it is no list of at most 64 names of 1 to 64 printable characters.
    """
    if not isinstance(claim, list) or len(claim) > MAX_NAMES or not all(map(is_name, claim)):
        raise ValueError(f"its {what} are no list of names")
    return frozenset(claim)


def _group(value: str) -> str:
    if not is_name(value):
        raise ValueError(
            f'"{value[:80]}" is not a group: write 1 to 64 printable characters, without spaces '
            "around them"
        )
    return value


GroupName = Annotated[str, AfterValidator(_group)]
"""For settings that name groups."""

Role = Literal["user", "approver", "operator", "administrator"]
USER, APPROVER, OPERATOR, ADMINISTRATOR = ROLES = get_args(Role)
"""What an account may do: ask questions; answer other people's approval requests, and share
verified queries with its groups; look at and stop other people's runs; manage accounts. No role
includes another one."""
