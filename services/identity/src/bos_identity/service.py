"""Builds identity and serves it: the same function for its own process and for standalone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from bos.identity.v1 import (
    add_AccountServiceServicer_to_server,
    add_AdministrationServiceServicer_to_server,
    add_ApiKeyServiceServicer_to_server,
    add_ConnectionSecretServiceServicer_to_server,
    add_ConnectionServiceServicer_to_server,
    add_CredentialServiceServicer_to_server,
    add_IdentityServiceServicer_to_server,
    add_OpenIdServiceServicer_to_server,
)
from bos_chassis.auth.api_keys import ApiKeyVerifier
from bos_chassis.auth.callers import RunTokenVerifier
from bos_chassis.auth.jwks import KeySet
from bos_chassis.auth.proxy_tokens import from_proxy, proxy_tokens_from
from bos_chassis.auth.run_token_keys import key_sources
from bos_chassis.auth.user_tokens import UserTokenVerifier, with_users
from bos_chassis.channels import Channels
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.telemetry import Telemetry
from bos_identity.accounts import LOCAL_USER_ID, Accounts
from bos_identity.administration.api import SERVICE_NAME as ADMINISTRATION_SERVICE
from bos_identity.administration.api import AdministrationServicer
from bos_identity.administration.invitations import Invitations
from bos_identity.administration.registration import Registration, takes_neighbours
from bos_identity.administration.resets import Resets
from bos_identity.administration.users import Users
from bos_identity.api import OPEN_METHODS, SERVICE_NAME, IdentityServicer
from bos_identity.api_keys.api import SERVICE_NAME as API_KEY_SERVICE
from bos_identity.api_keys.api import ApiKeyServicer
from bos_identity.api_keys.store import LONGEST_TOKEN_S, ApiKeys
from bos_identity.client_address import Addresses
from bos_identity.connections.api import AUDIENCE as CONNECTION_AUDIENCE
from bos_identity.connections.api import SECRET_SERVICE_NAME as CONNECTION_SECRET_SERVICE
from bos_identity.connections.api import SERVICE_NAME as CONNECTION_SERVICE
from bos_identity.connections.api import ConnectionSecretServicer, ConnectionServicer
from bos_identity.connections.store import Connections
from bos_identity.credentials.api import OPEN_METHODS as CREDENTIAL_OPEN_METHODS
from bos_identity.credentials.api import SERVICE_NAME as CREDENTIAL_SERVICE
from bos_identity.credentials.api import CredentialServicer
from bos_identity.credentials.callers import Callers
from bos_identity.credentials.exchange import KeyExchange
from bos_identity.deletion.api import SERVICE_NAME as ACCOUNT_SERVICE
from bos_identity.deletion.api import AccountServicer
from bos_identity.deletion.data_services import DataServices, unnamed
from bos_identity.deletion.runner import DeletionRunner
from bos_identity.deletion.store import AccountDeletions
from bos_identity.identity import Identity
from bos_identity.maintenance import running_maintenance
from bos_identity.metrics import IdentityMetrics
from bos_identity.openid.api import OPEN_METHODS as OPENID_OPEN_METHODS
from bos_identity.openid.api import SERVICE_NAME as OPENID_SERVICE
from bos_identity.openid.api import OpenIdServicer
from bos_identity.openid.identities import ExternalIdentities
from bos_identity.openid.service import openid_log_in
from bos_identity.passwords.attempts import Attempts
from bos_identity.passwords.hashes import Passwords
from bos_identity.passwords.throttle import Throttle
from bos_identity.sessions import Sessions
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import KeyRing, open_key_ring, sealer
from bos_identity.tokens import AccessTokens
from bos_postgres.audit import (
    By,
    Refusals,
    ServiceStore,
    audit_servicer,
)

SCHEMA = "identity"
READER = "bos_identity_reader"
STORE = ServiceStore(
    SCHEMA,
    Path(__file__).parent / "migrations",
    READER,
    max_connections=8,
    max_readers=4,
)
migrate_store = STORE.migrate
# Its own keys are at hand: they are looked at anew with every token that is not known.
_OWN_KEYS_S = 1.0
# The largest request holds a token or two.
_REQUEST_BYTES = 64 * 1024
# By how much clocks may differ, and calls that came in time may last.
_TOKENS_END_S = 60.0


@asynccontextmanager
async def serve(
    settings: IdentitySettings,
    telemetry: Telemetry,
    *,
    proxied: bool | None = None,
    account_data: Callable[[], Mapping[str, str]] | None = None,
) -> AsyncIterator[GrpcServer]:
    """Serve identity until the context is left.

    Args:
        settings: How.
        telemetry: Where its logs, metrics and traces go.
        proxied: Whether proxies pass calls of others on; None: if keys of some are set.
        account_data: Which services hold data of accounts, by name, if that is known later than
            the settings are.

    Raises:
        ConfigurationError: a setting is not usable, such as missing keys.
        Unavailable: the store cannot be reached.
    """
    metrics = IdentityMetrics(telemetry.registry)
    log = telemetry.logger("bos.identity")
    if proxied is None:
        given = settings.auth
        proxied = bool(given.proxy_public_keys or given.proxy_public_keys_file)
    if proxied and takes_neighbours(settings):
        log.warning(
            "callers on this machine may register without invitation, and proxies are set",
            remedy="set BOS_IDENTITY_REGISTRATION_OPEN=false, or name each proxy on this machine "
            "in BOS_REST_TRUSTED_PROXIES",
        )
    async with AsyncExitStack() as stack:
        pool, readers = await stack.enter_async_context(
            STORE.open(settings.store_url, telemetry, audit=settings.audit, settings=settings)
        )
        refusals = Refusals(pool, telemetry)
        addresses = Addresses(proxy_tokens_from(settings.auth, telemetry))
        await stack.enter_async_context(refusals.running())
        keys = await stack.enter_async_context(open_key_ring(settings, pool, metrics, telemetry))
        passwords = await stack.enter_async_context(Passwords(settings, metrics))
        own_keys = await stack.enter_async_context(
            KeySet(_published(keys), max_age_s=_OWN_KEYS_S, log=log, pause_s=0.0)
        )
        accounts, sessions, throttle = (
            Accounts(pool, readers),
            Sessions(pool, readers, settings),
            Throttle(pool, settings),
        )
        api_keys, tokens = ApiKeys(pool, readers), AccessTokens(keys, settings)
        # With signing keys in files there need not be a key that encrypts secrets in the store.
        sealed = sealer(settings) if settings.key_encryption_keys is not None else None
        connections = Connections(pool, readers, sealed, log)
        invitations, resets = Invitations(pool), Resets(pool, settings)
        if settings.auth.static_key_user == str(LOCAL_USER_ID):
            await accounts.add_local_user()
        identity = Identity(
            accounts=accounts,
            sessions=sessions,
            passwords=passwords,
            attempts=Attempts(passwords, throttle, metrics),
            throttle=throttle,
            resets=resets,
            tokens=tokens,
            settings=settings,
            metrics=metrics,
            log=log,
            refusals=refusals,
        )
        registration = Registration(
            accounts=accounts,
            invitations=invitations,
            passwords=passwords,
            throttle=throttle,
            settings=settings,
            metrics=metrics,
            log=log,
            refusals=refusals,
        )
        openid = await stack.enter_async_context(openid_log_in(settings, pool, identity, telemetry))
        ageing = (sessions, throttle, invitations, resets, api_keys)
        flows = () if openid is None else (openid.flows,)
        await stack.enter_async_context(running_maintenance((*ageing, *flows), telemetry))
        channels = await stack.enter_async_context(Channels(telemetry, tls=settings.server.tls))
        targets = account_data or (lambda: settings.account_data_targets)
        data_services = DataServices(channels, tokens, targets)
        if kept := unnamed(settings.account_data_targets):
            log.warning("services with data of accounts are not named", services=kept)
        longest_s = max(settings.access_token_s, LONGEST_TOKEN_S)
        deletions = AccountDeletions(pool, longest_s + _TOKENS_END_S)
        runner = DeletionRunner(deletions, data_services, metrics, log)
        await stack.enter_async_context(runner.running())
        exchange, callers = KeyExchange(api_keys, tokens), Callers(sessions, api_keys)
        users = UserTokenVerifier(
            own_keys,
            issuer=settings.issuer,
            audience=settings.audience,
            require_type=True,
            log=log,
        )
        own = IdentityServicer(identity, registration, callers, keys, addresses.proxies)
        servicers = (
            Servicer(
                own,
                add_IdentityServiceServicer_to_server,
                SERVICE_NAME,
                open_methods=OPEN_METHODS,
                max_request_bytes=_REQUEST_BYTES,
            ),
            Servicer(
                AdministrationServicer(
                    Users(pool),
                    invitations,
                    resets,
                    deletions,
                    data_services,
                    runner,
                    callers,
                    addresses,
                    log,
                ),
                add_AdministrationServiceServicer_to_server,
                ADMINISTRATION_SERVICE,
                max_request_bytes=_REQUEST_BYTES,
            ),
            Servicer(
                AccountServicer(
                    identity,
                    api_keys,
                    connections,
                    ExternalIdentities(readers),
                    deletions,
                    data_services,
                    runner,
                    callers,
                    addresses,
                    log,
                ),
                add_AccountServiceServicer_to_server,
                ACCOUNT_SERVICE,
                max_request_bytes=_REQUEST_BYTES,
            ),
            Servicer(
                ApiKeyServicer(api_keys, callers, addresses, log),
                add_ApiKeyServiceServicer_to_server,
                API_KEY_SERVICE,
                max_request_bytes=_REQUEST_BYTES,
            ),
            Servicer(
                CredentialServicer(exchange, callers),
                add_CredentialServiceServicer_to_server,
                CREDENTIAL_SERVICE,
                open_methods=CREDENTIAL_OPEN_METHODS,
                max_request_bytes=_REQUEST_BYTES,
            ),
        )
        connecting = [
            Servicer(
                ConnectionServicer(connections, callers, addresses, log),
                add_ConnectionServiceServicer_to_server,
                CONNECTION_SERVICE,
                max_request_bytes=_REQUEST_BYTES,
            )
        ]
        if sources := key_sources(settings.auth, telemetry):
            connecting.append(
                Servicer(
                    ConnectionSecretServicer(connections),
                    add_ConnectionSecretServiceServicer_to_server,
                    CONNECTION_SECRET_SERVICE,
                    auth=RunTokenVerifier(sources, CONNECTION_AUDIENCE, "service"),
                    max_request_bytes=_REQUEST_BYTES,
                )
            )

        async def administrator(context: Any) -> By:
            caller = await callers.caller()
            caller.require_administrator()
            return caller.by(addresses.of(context))

        trail = audit_servicer(pool, SCHEMA, administrator)
        by_openid = Servicer(
            OpenIdServicer(openid, own.origin),
            add_OpenIdServiceServicer_to_server,
            OPENID_SERVICE,
            open_methods=OPENID_OPEN_METHODS,
            max_request_bytes=_REQUEST_BYTES,
        )
        verifier = ApiKeyVerifier(_exchanged(exchange), users.verify)
        yield await stack.enter_async_context(
            grpc_server(
                settings.server,
                (*servicers, *connecting, by_openid, trail),
                telemetry=telemetry,
                auth=with_users(settings.auth, None, users, api_keys=verifier, telemetry=telemetry),
                from_proxy=from_proxy(settings.auth, telemetry),
            )
        )


def _exchanged(exchange: KeyExchange) -> Callable[[str], Awaitable[str]]:
    async def token(key: str) -> str:
        return (await exchange.token(key))[0]

    return token


def _published(keys: KeyRing) -> Any:
    async def fetch() -> Sequence[Mapping[str, Any]]:
        return [MessageToDict(key, preserving_proto_field_name=True) for key in keys.published]

    return fetch
