"""Erasing and exporting what services hold of an account: who may ask for it.

Identity calls every service that stores what belongs to users, with an access token of the account
that is limited to one of the scopes below. No session and no API key ever has them.
"""

from __future__ import annotations

from typing import Final, Literal

from bos_chassis.auth import current_principal
from bos_chassis.errors import PermissionDenied

SERVICE_NAME: Final = "bos.account.v1.AccountDataService"
ERASE: Final = "account.erase"
EXPORT: Final = "account.export"


def account_to(scope: Literal["account.erase", "account.export"]) -> str:
    """The user whose data is meant by the call in progress.

    Raises:
        PermissionDenied: It is not identity that calls, for this.
    """
    principal = current_principal()
    if (
        principal is None
        or principal.kind != "user_token"
        or principal.scopes is None
        or scope not in principal.scopes
    ):
        raise PermissionDenied(
            "Only identity asks for this. Delete or export an account with `bos account`.",
            reason="IDENTITY_ONLY",
        )
    return principal.user_id
