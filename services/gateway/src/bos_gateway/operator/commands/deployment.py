"""Deployment that a command examines: the gateway's settings, or the standalone of this folder.

The folder may be untrusted: a clone, an archive, a share. So its ``.env`` is read only if the
environment names no deployment, and then alone: it must not say where credentials go that it does
not hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from pydantic_settings import SettingsConfigDict

from bos_chassis.settings import Settings, TlsSettings, settings_from
from bos_client.connection import Connection, NoConnection, find_connection
from bos_errors import ConfigurationError
from bos_gateway.permits.audiences import DEFAULT
from bos_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic import SecretStr

    from bos_chassis.settings import Source
    from bos_gateway.key_ring import SecretsKeyRing
    from bos_gateway.permits.audiences import Audiences
    from bos_gateway.permits.connections import Kinds


# A standalone speaks plain text, also if the environment says otherwise.
_PLAIN = TlsSettings.model_construct(cert_file=None, key_file=None, ca_file=None)


class _StoreSettings(Settings):
    """Of the gateway's settings, the one that shows whether there are any."""

    model_config = SettingsConfigDict(env_prefix="BOS_GATEWAY_")

    store_url: str | None = None
    planner_target: str | None = None
    artefacts_url: str | None = None


class _AuditStores(Settings):
    """The databases of all services that keep an audit trail."""

    model_config = SettingsConfigDict(env_prefix="BOS_")

    gateway_store_url: str | None = None
    identity_store_url: str | None = None
    memory_store_url: str | None = None
    documents_store_url: str | None = None
    files_store_url: str | None = None


_SOURCES: Mapping[Source, str] = {"environment": "BOS_GATEWAY_… (environment)", "file": ".env"}


@dataclass(frozen=True, slots=True)
class Deployment:
    """Addresses, keys and settings of a deployment."""

    source: str
    """Where this was read, as shown to operators."""
    store_url: str = field(repr=False)
    planner_target: str
    composer_target: str
    agent_targets: Mapping[str, str]
    fallback_agent: str
    run_timeout_s: float
    agent_audiences: Audiences = field(default_factory=lambda: DEFAULT)
    """Services that agents may call for their steps."""
    agent_connections: Kinds = field(default_factory=dict)
    """Kinds of users' connections that agents are given."""
    run_token_private_key: SecretStr | None = None
    run_token_private_keys_file: Path | None = None
    secrets: SecretsKeyRing | None = None
    """What encrypts the credentials of runs."""
    secrets_key_ids: frozenset[str] = frozenset()
    """The ids of its keys; a standalone says no more."""
    local: Connection | None = None
    """The gateway of a standalone, which alone holds the key of its run tokens."""
    tls: TlsSettings = field(default_factory=lambda: _PLAIN)
    """How the gateway calls services."""
    artefacts_url: str | None = None
    """The artefact store of a standalone's runs; elsewhere the environment alone names it."""
    models: tuple[str, ...] = ()
    """Models that questions may choose; a standalone does not say."""
    model: str = ""
    """Which model a standalone uses; empty where each service has settings of its own."""
    settings_of: Source = "environment"
    """Where all settings come from; a standalone has its own."""

    @property
    def remedy(self) -> str:
        """Advice for a service that is down."""
        return "Start `bos serve all` in this folder" if self.local else "Start it"


def find_store(start: Path) -> str:
    """The URL of the run log.

    Raises:
        ConfigurationError: nothing says where it is.
    """
    return _configured_store() or _standalone(start).store_url


def _configured_store() -> str | None:
    """The URL of the run log by settings of the gateway; None without any."""
    for source in _SOURCES:
        with settings_from(source):
            if url := _StoreSettings.load().store_url:
                return url if source == "environment" else _alone(url)
    return None


def find_run_stores(start: Path) -> tuple[str, str | None]:
    """The URLs of the run log and of the artefact store that holds the files of its runs.

    Both are of one deployment: a standalone names its own artefact store, for all others the
    environment does. A folder's ``.env`` must not say where files are deleted.

    Raises:
        ConfigurationError: nothing says where the run log is.
    """
    with settings_from("environment"):
        of_environment = _StoreSettings.load().artefacts_url
    if url := _configured_store():
        return url, of_environment
    local = _standalone(start)
    return local.store_url, local.artefacts_url or of_environment


def find_audit_stores(start: Path) -> list[str]:
    """The URLs of all databases with audit trails; a standalone has one for all services.

    Raises:
        ConfigurationError: nothing says where any of them is.
    """
    for source in _SOURCES:
        if found := _audit_stores(source):
            return found
    return [_standalone(start).store_url]


def audit_stores_of(deployment: Deployment) -> list[str]:
    """The URLs of the databases with audit trails that belong to ``deployment``."""
    own = [deployment.store_url]
    if deployment.local is not None:
        return own
    return list(dict.fromkeys(own + _audit_stores(deployment.settings_of)))


def _audit_stores(source: Source) -> list[str]:
    with settings_from(source):
        given = _AuditStores.load()
    found = list(dict.fromkeys(url for url in given.model_dump().values() if url))
    return found if source == "environment" else [_alone(url) for url in found]


def find_deployment(start: Path) -> Deployment:
    """The deployment that the environment describes, else the standalone of ``start``.

    Raises:
        ConfigurationError: there is neither; or a setting is wrong, and named.
    """
    for source in _SOURCES:
        with settings_from(source):
            given = _StoreSettings.load()
            if given.store_url or given.planner_target:
                return _of_settings(source, GatewaySettings.load())
    return _standalone(start)


def _of_settings(source: Source, settings: GatewaySettings) -> Deployment:
    ring, url = settings.secrets_key_ring(), settings.store_url
    return Deployment(
        source=_SOURCES[source],
        settings_of=source,
        store_url=url if source == "environment" else _alone(url),
        planner_target=settings.planner_target,
        composer_target=settings.composer_target,
        agent_targets=settings.agent_targets,
        fallback_agent=settings.fallback_agent,
        run_timeout_s=settings.run_timeout_s,
        agent_audiences=settings.agent_audiences,
        agent_connections=settings.agent_connections,
        models=tuple(settings.models),
        run_token_private_key=settings.run_token_private_key,
        run_token_private_keys_file=settings.run_token_private_keys_file,
        secrets=ring,
        tls=settings.server.tls,
        secrets_key_ids=ring.ids if ring else frozenset(),
    )


def _alone(url: str) -> str:
    """The URL of a database that takes no password but its own, such as that of ``PGPASSWORD``."""
    parts = urlsplit(url)
    if parts.password or "password" in parse_qs(parts.query):
        return url  # an empty one would count as none
    return parts._replace(query=f"{parts.query}&password=none".lstrip("&")).geturl()


def _standalone(start: Path) -> Deployment:
    defaults = GatewaySettings.model_fields
    try:
        local = find_connection(None, None, start)
        return Deployment(
            source="the standalone of this folder (.data/standalone.json)",
            store_url=local.operator["store_url"],
            planner_target=local.operator["planner_target"],
            composer_target=local.operator["composer_target"],
            agent_targets=dict(local.operator["agent_targets"]),
            fallback_agent=defaults["fallback_agent"].default,
            run_timeout_s=defaults["run_timeout_s"].default,
            agent_audiences=dict(local.operator.get("agent_audiences", DEFAULT)),
            agent_connections=dict(local.operator.get("agent_connections", {})),
            secrets_key_ids=frozenset(local.operator.get("secrets_key_ids", ())),
            local=local,
            artefacts_url=local.operator.get("artefacts_url"),
            model=local.operator["model"],
        )
    except (NoConnection, KeyError, TypeError, ValueError):
        raise ConfigurationError(
            "Nothing says where Bos is. Set BOS_GATEWAY_STORE_URL, BOS_GATEWAY_PLANNER_TARGET, "
            "BOS_GATEWAY_COMPOSER_TARGET and BOS_GATEWAY_AGENT_TARGETS as the gateway has them, "
            "or run this in the folder of a running `bos serve all` of yours, of this version."
        ) from None
