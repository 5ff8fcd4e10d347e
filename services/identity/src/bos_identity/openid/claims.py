"""Claims of an OpenID provider, mapped to an account: names, address, roles, groups; pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from bos_chassis.names import ADMINISTRATOR, APPROVER, OPERATOR, USER
from bos_errors import InvalidArgument, PermissionDenied
from bos_identity.accounts import LOCAL_USERNAME
from bos_identity.names import clean_name

_ROLES: Final = (USER, APPROVER, OPERATOR, ADMINISTRATOR)
_GROUP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_EMAIL: Final = re.compile(r"[^\s@\x00-\x1f\x7f]{1,64}@[A-Za-z0-9.-]{1,189}\Z")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_GROUPS: Final = 32
_MAX_LISTED: Final = 1000
_MAX_USERNAME: Final = 50  # so that there is place for a number behind it
_MAX_CLAIM: Final = 512
_ANONYMOUS: Final = "user"


def username_of(claims: Mapping[str, Any]) -> str:
    """A name in the form of usernames, which may be taken."""
    text = _text(claims, "preferred_username") or _text(claims, "email")
    plain = unicodedata.normalize("NFKD", text.partition("@")[0])
    plain = _FOREIGN.sub("-", plain.encode("ascii", "ignore").decode()).strip("._-")
    plain = plain[:_MAX_USERNAME]
    return plain if len(plain) > 1 and plain.lower() != LOCAL_USERNAME else _ANONYMOUS


def email_of(claims: Mapping[str, Any]) -> str | None:
    """The address, if the provider says that it is theirs."""
    email = _text(claims, "email")
    if claims.get("email_verified") is not True or not email.isprintable():
        return None
    return email if _EMAIL.match(email) else None


def display_name_of(claims: Mapping[str, Any], username: str) -> str:
    """The name to show; the username if there is none that can be shown."""
    try:
        return clean_name("name", _text(claims, "name")) or username
    except InvalidArgument:
        return username


def roles_of(claims: Mapping[str, Any], claim: str) -> list[str] | None:
    """The roles that a claim names; None if no claim is meant to. Words of others are no roles."""
    if not claim:
        return None
    named = _list(claims, claim)
    return [role for role in _ROLES if role in named]


def groups_of(claims: Mapping[str, Any], claim: str) -> list[str] | None:
    """The groups that a claim names; None if no claim is meant to.

    Raises:
        PermissionDenied: They are more than an account can have; to leave some out would leave it
            to chance what their members may use.
    """
    if not claim:
        return None
    groups = sorted({each for each in _list(claims, claim) if _GROUP.match(each)})
    if len(groups) > _MAX_GROUPS:
        raise PermissionDenied(
            f"You are in more than {_MAX_GROUPS} groups; an operator has to choose a claim that "
            "names only those for Bos (BOS_IDENTITY_OPENID_GROUPS_CLAIM).",
            reason="OPENID_TOO_MANY_GROUPS",
        )
    return groups


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value if isinstance(value, str) and len(value) <= _MAX_CLAIM else ""


def _list(claims: Mapping[str, Any], path: str) -> list[str]:
    """The words of a claim: of one with that very name, else of one inside others by its path."""
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        return []
    return [each for each in value[:_MAX_LISTED] if isinstance(each, str)]
