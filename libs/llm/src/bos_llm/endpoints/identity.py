"""Tokens of an Azure managed identity, in the place of a key.

How a token is had differs by platform (App Service, Functions, virtual machines, AKS workload
identity, Arc); ``azure-identity`` knows them all and is installed with ``bos-llm[azure]`` only.
Here: one request for a token at a time, shared by all callers, and a new one before expiry.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import logging
import time
from typing import TYPE_CHECKING, Final

from bos_errors import ConfigurationError
from bos_llm.errors import ModelNotConfigured, ModelUnavailable

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.core.credentials_async import AsyncTokenCredential

SCOPE: Final = "https://cognitiveservices.azure.com/.default"
# azure-identity goes to the network for a new token five minutes before the end of the old one;
# asking earlier would only return the old one.
_REFRESH_BEFORE_S = 240.0
_USABLE_S = 15.0
_RETRY_S = 20.0
_REQUEST_S = 30.0


def identity_available() -> bool:
    """Whether the package is installed that knows the platforms' ways to a token."""
    try:
        return importlib.util.find_spec("azure.identity.aio") is not None
    except ModuleNotFoundError:
        return False


class AzureTokens:
    """The current token of this machine's identity; safe to share between tasks.

    Args:
        client_id: Which of several identities; None for the platform's default.

    Raises:
        ConfigurationError: the package is not installed.
    """

    def __init__(self, client_id: str | None = None) -> None:
        try:
            from azure.core.exceptions import AzureError
            from azure.identity import CredentialUnavailableError
            from azure.identity.aio import ManagedIdentityCredential
        except ImportError:
            raise ConfigurationError(
                "AZURE_OPENAI_AUTH=managed_identity needs the package azure-identity: install "
                "bos-llm[azure], or set AZURE_OPENAI_AUTH=key and AZURE_OPENAI_API_KEY"
            ) from None
        # It says at length which endpoints it tried, and what they answered.
        logging.getLogger("azure").setLevel(logging.ERROR)
        self._failures: tuple[type[Exception], type[Exception]] = (
            CredentialUnavailableError,
            AzureError,
        )
        self._credential: AsyncTokenCredential = ManagedIdentityCredential(client_id=client_id)
        self._token: AccessToken | None = None
        self._refresh: asyncio.Task[AccessToken] | None = None
        self._not_before = 0.0

    async def __call__(self) -> str:
        """A token that is good for the call at hand.

        Raises:
            ModelNotConfigured: there is no managed identity here.
            ModelUnavailable: its token could not be had.
        """
        token, now = self._token, time.time()
        if token is not None and token.expires_on - now > _REFRESH_BEFORE_S:
            return token.token
        usable = token is not None and token.expires_on - now > _USABLE_S
        if self._refresh is None and (not usable or time.monotonic() >= self._not_before):
            # A task of its own: the first caller may be cancelled, and others wait as well.
            self._refresh = asyncio.create_task(self._request(), context=contextvars.Context())
            self._refresh.add_done_callback(self._refreshed)
        if usable and token is not None:
            return token.token
        assert self._refresh is not None
        return (await asyncio.shield(self._refresh)).token

    async def close(self) -> None:
        """End the request under way and close the connections."""
        refresh = self._refresh
        if refresh is not None:
            refresh.cancel()
            await asyncio.wait({refresh})
        await self._credential.close()

    def _refreshed(self, refresh: asyncio.Task[AccessToken]) -> None:
        self._refresh = None
        if refresh.cancelled():
            return
        if refresh.exception() is not None or refresh.result() is self._token:
            # Nothing new to be had yet; the old one may still be good for a while.
            self._not_before = time.monotonic() + _RETRY_S
        else:
            self._token = refresh.result()

    async def _request(self) -> AccessToken:
        absent, failed = self._failures
        try:
            async with asyncio.timeout(_REQUEST_S):
                token = await self._credential.get_token(SCOPE)
        except absent:
            problem: ModelNotConfigured | ModelUnavailable = ModelNotConfigured(
                "There is no managed identity here (AZURE_OPENAI_AUTH=managed_identity). Assign "
                "one to this workload, check AZURE_CLIENT_ID, or set AZURE_OPENAI_API_KEY and "
                "AZURE_OPENAI_AUTH=key.",
                reason="MODEL_IDENTITY_MISSING",
            )
        except (failed, TimeoutError, OSError):
            problem = ModelUnavailable(
                "The token of the managed identity could not be had.",
                reason="MODEL_IDENTITY_UNAVAILABLE",
            )
        else:
            known = self._token
            return known if known is not None and known.token == token.token else token
        raise problem  # not chained: the original may hold what the token endpoint wrote
