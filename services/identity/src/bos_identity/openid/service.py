"""Puts signing in by an OpenID provider together, where the settings name one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from bos_chassis.auth.jwks import KeySet
from bos_chassis.telemetry import Telemetry
from bos_http import HttpClient
from bos_identity.identity import Identity
from bos_identity.openid.client_secret import ClientSecret
from bos_identity.openid.flows import Flows
from bos_identity.openid.id_tokens import IdTokens
from bos_identity.openid.log_in import OpenIdLogIn
from bos_identity.openid.people import People
from bos_identity.openid.provider import Provider, policy_of
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import sealer

_KEYS_MAX_AGE_S = 300.0


@asynccontextmanager
async def openid_log_in(
    settings: IdentitySettings,
    pool: asyncpg.Pool[asyncpg.Record],
    identity: Identity,
    telemetry: Telemetry,
) -> AsyncIterator[OpenIdLogIn | None]:
    """Signing in by the provider, or None if there is none; its connections end with the block.

    Raises:
        ConfigurationError: The secret, the certificate authorities or the encryption key is not
            usable.
    """
    own = settings.openid
    if own.issuer is None:
        yield None
        return
    log = telemetry.logger("bos.identity.openid")
    flows = Flows(pool, sealer(settings), own)
    async with HttpClient(policy_of(own), telemetry) as client:
        secret = ClientSecret(own, telemetry, settings.auth.files_refresh_s)
        provider = Provider(own, client, log, secret)
        async with KeySet(provider.keys, max_age_s=_KEYS_MAX_AGE_S, log=log) as keys:
            yield OpenIdLogIn(
                settings=own,
                provider=provider,
                id_tokens=IdTokens(keys, own.issuer, own.client_id, log),
                flows=flows,
                people=People(pool, registration=own.registration),
                identity=identity,
                log=log,
            )
