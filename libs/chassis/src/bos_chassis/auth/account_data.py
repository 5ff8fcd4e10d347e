"""Erasing and exporting what services hold of an account: who may ask for it.

Identity calls every service that stores what belongs to users, with a token that names the account
and is good for one of the scopes below alone. No session and no API key ever has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from bos_chassis.auth.callers import current_principal
from bos_chassis.auth.scopes import ERASE, EXPORT, identity_only

__all__ = ["ERASE", "EXPORT", "HOLDERS", "PART_BYTES", "SERVICE_NAME", "account_to", "parts"]

SERVICE_NAME: Final = "bos.account.v1.AccountDataService"
HOLDERS: Final = ("gateway", "memory", "documents", "files")
"""Services that hold data of accounts beside identity, in the order in which they are asked: runs
first, as they may still write into others. A test compares them with what serves the contract."""
PART_BYTES: Final = 256 * 1024
"""Most of a file that one message of an export holds."""


def account_to(scope: str) -> str:
    """The user whose data is meant by the call in progress.

    Raises:
        PermissionDenied: It is not identity that calls, for this.
    """
    principal = current_principal()
    if (
        principal is None
        or principal.kind != "account_data"
        or principal.scopes != frozenset((scope,))
    ):
        raise identity_only()
    return principal.user_id


def parts(content: bytes) -> Iterator[bytes]:
    """The messages that a file goes in: one at least, so that an empty file is there, too."""
    for start in range(0, max(1, len(content)), PART_BYTES):
        yield content[start : start + PART_BYTES]
