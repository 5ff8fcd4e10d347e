"""Calls of the services that hold data of accounts: delete it, send it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos.account.v1 import (
    AccountDataServiceStub,
    EraseAccountDataRequest,
    ExportAccountDataRequest,
)
from bos_chassis.auth.account_data import HOLDERS
from bos_chassis.auth.callers import AUTHORIZATION_KEY
from bos_chassis.auth.scopes import ERASE, EXPORT
from bos_chassis.channels import translate_rpc_errors
from bos_errors import FailedPrecondition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from uuid import UUID

    from bos.account.v1 import EraseAccountDataResponse, ExportAccountDataResponse
    from bos_chassis.channels import Channels
    from bos_identity.tokens import AccessTokens

    Targets = Callable[[], Mapping[str, str]]

_ERASE_S: Final = 30.0
_EXPORT_S: Final = 600.0


def unnamed(targets: Mapping[str, str]) -> list[str]:
    """Services of Bos that hold data of accounts and are not among configured targets.

    What they hold stays when an account is deleted. Empty where nothing is configured, as no
    account is deleted then.
    """
    return [name for name in HOLDERS if name not in targets] if targets else []


class DataServices:
    """The services that hold data of accounts, as identity calls them.

    Args:
        channels: Of the service.
        tokens: What makes the token that each call needs.
        targets: Where they are, by name; asked at each use, as a standalone learns it late.
    """

    def __init__(self, channels: Channels, tokens: AccessTokens, targets: Targets) -> None:
        self._channels = channels
        self._tokens = tokens
        self._targets = targets

    @property
    def known(self) -> bool:
        """Whether it is known which services there are."""
        return bool(self._targets())

    def names(self) -> list[str]:
        """Their names, in the order in which they are asked.

        Raises:
            FailedPrecondition: It is not configured which services there are: unknown is what
                would be left behind.
        """
        found = list(self._targets())
        if not found:
            raise FailedPrecondition(
                "Identity does not know which services hold data of accounts. Its operator has to "
                "name them in BOS_IDENTITY_ACCOUNT_DATA_TARGETS.",
                reason="DATA_SERVICES_UNKNOWN",
            )
        return found

    async def erase(self, name: str, user_id: UUID) -> EraseAccountDataResponse:
        """Have a part of what the service holds of the account deleted.

        Raises:
            BosError: It cannot, or cannot be reached.
        """
        stub = AccountDataServiceStub(self._channels.get(self._targets()[name]))
        with translate_rpc_errors():
            return await stub.EraseAccountData(
                EraseAccountDataRequest(), timeout=_ERASE_S, metadata=self._token(user_id, ERASE)
            )

    async def export(self, name: str, user_id: UUID) -> AsyncIterator[ExportAccountDataResponse]:
        """What the service holds of the account, file by file.

        Raises:
            BosError: It cannot, or cannot be reached.
        """
        stub = AccountDataServiceStub(self._channels.get(self._targets()[name]))
        call = stub.ExportAccountData(
            ExportAccountDataRequest(), timeout=_EXPORT_S, metadata=self._token(user_id, EXPORT)
        )
        try:
            with translate_rpc_errors():
                async for part in call:
                    yield part
        finally:
            call.cancel()

    def _token(self, user_id: UUID, scope: str) -> tuple[tuple[str, str], ...]:
        return ((AUTHORIZATION_KEY, f"Bearer {self._tokens.mint_for_data(user_id, scope)}"),)
